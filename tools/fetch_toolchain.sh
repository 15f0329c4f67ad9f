#!/usr/bin/env bash
# Fetches the compiler and the C library of Debian 11 into a folder, and FOLDER/gcc runs the one with
# the other. Libraries that it compiles load on systems since 2018 (build:wheel in .bazelrc).
# Nothing is installed: root is not needed, but apt-get and Debian's keys are. Packages come from the
# first server of Debian's in this machine's own sources, or from DEBIAN_MIRROR.
#
# usage: [DEBIAN_MIRROR=URL] tools/fetch_toolchain.sh FOLDER
set -euo pipefail

folder=$(realpath -m "$1")
keys=/usr/share/keyrings/debian-archive-keyring.gpg
packages=(gcc-10 g++-10 cpp-10 libgcc-10-dev libstdc++-10-dev libgcc-s1 libstdc++6
  libc6 libc6-dev libcrypt1 libcrypt-dev linux-libc-dev)

if [[ -x $folder/gcc ]]; then
  exit 0
fi
if ! command -v apt-get >/dev/null || [[ ! -e $keys ]]; then
  echo "fetch_toolchain: wheels are built with Debian's packages; apt-get and $keys" \
    "(package debian-archive-keyring) are needed" >&2
  exit 1
fi
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' \
  'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | sed -n 1p)}
if [[ -z $mirror ]]; then
  echo "fetch_toolchain: no source of Debian's packages is known here: run apt-get update," \
    "or set DEBIAN_MIRROR to the address of a mirror" >&2
  exit 1
fi
rm -rf "$folder"
mkdir -p "$folder"/{apt/lists/partial,apt/archives/partial,packages,root}

# apt with lists of its own, so that this system's do not change.
echo "deb [signed-by=$keys] $mirror bullseye main" > "$folder/apt/sources.list"
cat > "$folder/apt/configuration" <<END
Dir::Etc::SourceList "$folder/apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State "$folder/apt";
Dir::State::status "/dev/null";
Dir::Cache "$folder/apt";
APT::Architecture "amd64";
APT::Sandbox::User "";
END
export APT_CONFIG=$folder/apt/configuration
apt-get -qq update
(cd "$folder/packages" && apt-get -qq download "${packages[@]}")
for package in "$folder"/packages/*.deb; do
  dpkg-deb -x "$package" "$folder/root"
done
# Links to absolute paths would lead out of the folder.
find "$folder/root" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
  ln -sfnr "$folder/root$(readlink "$link")" "$link"
done
rm -rf "$folder/packages" "$folder/apt"

cat > "$folder/gcc.new" <<END
#!/bin/sh
exec "$folder/root/usr/bin/x86_64-linux-gnu-gcc-10" "--sysroot=$folder/root" "\$@"
END
chmod +x "$folder/gcc.new"
mv "$folder/gcc.new" "$folder/gcc"  # last: the folder is complete
