# What vm.sh starts: packages, unpacked and not installed; a kernel for qemu, or one that is a program
# (User Mode Linux). Sourced by vm.sh; `cache` is where it all goes.

# Those with rdma_rxe, in the order of loading; crc32_generic is one that modprobe does not know of.
modules="virtio_pci 9p 9pnet_virtio overlay veth sch_netem ib_uverbs rdma_ucm crc32_generic rdma_rxe"
kernel_package=linux-image-6.12-amd64
source_package=linux-source-6.12
guest_packages="libnl-3-200 libnl-route-3-200 libibverbs1 ibverbs-providers ibverbs-utils rdma-core librdmacm1
  libibverbs-dev python3-pyverbs perftest libpci3 libibumad3 busybox-static kmod libkmod2 iproute2 libbpf1 libbsd0
  libelf1 libmnl0 libcap2 libxtables12 libtirpc3 libdb5.3 libmd0"
qemu_packages="qemu-system-x86 qemu-system-common qemu-system-data seabios libaio1 libbrlapi0.8
  libcacard0 libcapstone4 libdaxctl1 libepoxy0 libexecs0 libfdt1 libfuse3-3 liborc-0.4-0
  libgstreamer-plugins-base1.0-0 libnl-3-200 libnl-route-3-200 libibverbs1 libndctl6 libopus0 libpmem1 librdmacm1
  libslirp0 libsndio7.0 libspice-server1 liburing2 libusb-1.0-0 libusbredirparser1 libvdeplug2"
# What is needed to configure a kernel, besides make and a compiler.
build_packages="flex bison m4 libfl2 bc"
# rdma_rxe needs PCI, and User Mode Linux has that without a device.
uml_options="64BIT EXPERT MULTIUSER PRINTK BUG FUTEX EPOLL SIGNALFD TIMERFD EVENTFD SHMEM AIO ADVISE_SYSCALLS
  MEMBARRIER POSIX_TIMERS HIGH_RES_TIMERS NO_HZ_IDLE SYSVIPC POSIX_MQUEUE FHANDLE FILE_LOCKING KALLSYMS BLOCK
  BLK_DEV_INITRD BINFMT_ELF BINFMT_SCRIPT COREDUMP PROC_FS PROC_SYSCTL SYSCTL SYSFS TMPFS TMPFS_XATTR DEVTMPFS
  CONFIGFS_FS HOSTFS OVERLAY_FS INOTIFY_USER TTY UNIX98_PTYS NULL_CHAN STDERR_CONSOLE NET UNIX PACKET INET IPV6
  IP_ADVANCED_ROUTER IP_MULTIPLE_TABLES NETDEVICES NET_CORE VETH NET_SCHED NET_SCH_NETEM VIRTIO_MENU VIRTIO_UML
  UML_PCI_OVER_VIRTIO PCI CRYPTO INFINIBAND INFINIBAND_USER_MAD INFINIBAND_USER_ACCESS INFINIBAND_ADDR_TRANS RDMA_RXE
  DEBUG_INFO_NONE"

download() { apt-get -qq -o APT::Sandbox::User=root download "$@" || skip "apt-get cannot download $*"; }

# unpack FOLDER PACKAGE...: the packages' files, without installing them.
unpack() {
  local folder=$1 name deb
  shift
  rm -rf "$folder.new" "$folder.debs"
  mkdir -p "$folder.new"/usr/{bin,sbin,lib,lib64} "$folder.debs"
  for name in bin sbin lib lib64; do ln -s "usr/$name" "$folder.new/$name"; done
  (cd "$folder.debs" && download "$@")
  for deb in "$folder.debs"/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" |
      tar x -C "$folder.new" --keep-directory-symlink --exclude=./usr/share/{doc,man,locale}
  done
  rm -rf "$folder.debs" "$folder"
  mv "$folder.new" "$folder"
}

# The ELF file inside of a kernel image: qemu starts it without firmware and without unpacking, which would take seconds.
extract_kernel() {
  python3 - "$1" "$2" <<'PY'
import lzma, struct, subprocess, sys, zlib

image = open(sys.argv[1], "rb").read()
offset, size = struct.unpack_from("<II", image, 0x248)
payload = image[((image[0x1F1] or 4) + 1) * 512 + offset :][:size]
if payload[:6] == b"\xfd7zXZ\0":
    kernel = lzma.LZMADecompressor().decompress(payload)
elif payload[:2] == b"\x1f\x8b":
    kernel = zlib.decompressobj(31).decompress(payload)
else:
    kernel = subprocess.run(["zstd", "-dcq"], input=payload, capture_output=True).stdout
if kernel[:4] != b"\x7fELF":
    sys.exit("no kernel found in the image")
open(sys.argv[2], "wb").write(kernel)
PY
}

# pack_initramfs FOLDER: FOLDER/initramfs, with a shell and print_init's program, becomes FOLDER/image.initramfs.
pack_initramfs() {
  mkdir -p "$1/initramfs/bin"
  cp "$cache/guest/usr/bin/busybox" "$1/initramfs/bin/"
  ln -sf busybox "$1/initramfs/bin/sh"
  print_init >"$1/initramfs/init"
  chmod +x "$1/initramfs/init"
  (cd "$1/initramfs" && find . | "$cache/guest/usr/bin/busybox" cpio -o -H newc 2>/dev/null) >"$1/image.initramfs"
}

prepare_kernel() {
  local version into=$cache/kernel module path name
  version=$(apt-cache depends "$kernel_package" |
    sed -n 's/.*Depends: linux-image-\([0-9].*-amd64\)$/\1/p' | head -1)
  [[ -n $version ]] || skip "there is no package $kernel_package; it is Debian's"
  rm -rf "$into"
  mkdir -p "$into"/{files,deb,tools,initramfs/modules}
  (cd "$into/deb" && download "linux-image-$version")
  dpkg-deb --fsys-tarfile "$into"/deb/*.deb | tar x -C "$into/files"
  for name in depmod modprobe; do ln -s "$cache/guest/usr/bin/kmod" "$into/tools/$name"; done
  export LD_LIBRARY_PATH=$cache/guest/usr/lib/x86_64-linux-gnu
  "$into/tools/depmod" -b "$into/files" "$version"
  for module in $modules; do
    "$into/tools/modprobe" -d "$into/files" -S "$version" --show-depends "$module" 2>/dev/null || true
  done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' | while read -r path; do
    name=$(basename "${path%.xz}")
    case $path in *.xz) xz -dc "$path" ;; *) cat "$path" ;; esac >"$into/initramfs/modules/$name"
    echo "$name" >>"$into/initramfs/modules/list"
  done
  unset LD_LIBRARY_PATH
  pack_initramfs "$into"
  extract_kernel "$into"/files/boot/vmlinuz-* "$into/image"
  rm -rf "$into"/{files,deb,initramfs}
  echo "$version" >"$into/ready"
}

# A host with AMX has 11,008 bytes of registers and takes back no other size, where kernels before 6.13 have room for
# 2,696: more room, and the size that the host has told.
make_room_for_registers() {
  sed -i 's/DEFINE_LONGS(HOST_FP_SIZE, 2696)/DEFINE_LONGS(HOST_FP_SIZE, 16384)/' "$1/arch/x86/um/user-offsets.c"
  python3 - "$1/arch/x86/um/os-Linux/registers.c" <<'PY'
import sys

path = sys.argv[1]
text = open(path).read()


def replace(old, new, count):
    global text
    if text.count(old) != count:
        sys.exit(f"{path} is another version's: {old!r} {text.count(old)} times")
    text = text.replace(old, new)


replace("iov.iov_len = FP_SIZE * sizeof(unsigned long);", "iov.iov_len = registers_bytes;", 3)
replace(
    "&iov) == 0)\n\t\thave_xstate_support = 1;",
    "&iov) == 0) {\n\t\thave_xstate_support = 1;\n\t\tregisters_bytes = iov.iov_len;\n\t}",
    1,
)
replace(
    "static int have_xstate_support;",
    "static int have_xstate_support;\nstatic size_t registers_bytes = FP_SIZE * sizeof(unsigned long);",
    1,
)
open(path, "w").write(text)
PY
}

build_uml() {
  local into=$cache/uml source=$cache/uml/source option
  command -v make gcc >/dev/null || skip "User Mode Linux has to be built, and there is no make or gcc"
  echo "rdma-vm: building User Mode Linux, once; some minutes" >&2
  rm -rf "$into"
  mkdir -p "$source" "$into/deb"
  (cd "$into/deb" && download "$source_package")
  unpack "$into/tools" $build_packages
  dpkg-deb --fsys-tarfile "$into"/deb/*.deb | tar xO "./usr/src/$source_package.tar.xz" |
    tar xJ -C "$source" --strip-components=1 --exclude='*/Documentation/*/*' --exclude='*/tools/testing' \
      --exclude='*/sound/*.[ch]' --exclude='*/drivers/gpu/*.[ch]' --exclude='*/drivers/media/*.[ch]' \
      --exclude='*/drivers/net/ethernet/*.[ch]' --exclude='*/drivers/net/wireless/*.[ch]'
  make_room_for_registers "$source" || skip "this version of User Mode Linux is not known"
  {
    for option in $uml_options; do echo "CONFIG_$option=y"; done
    printf 'CONFIG_%s\n' KERNEL_STACK_ORDER=4 'CON_CHAN="null"' 'CON_ZERO_CHAN="null,fd:1"' \
      UML_PCI_OVER_VIRTIO_DEVICE_ID=1234
  } >"$source/wanted"
  (
    export PATH=$into/tools/usr/bin:$PATH LD_LIBRARY_PATH=$into/tools/usr/lib/x86_64-linux-gnu
    export BISON_PKGDATADIR=$into/tools/usr/share/bison M4=$into/tools/usr/bin/m4
    cd "$source"
    make -s ARCH=um KCONFIG_ALLCONFIG=wanted allnoconfig
    for option in $uml_options; do
      grep -q "^CONFIG_$option=y" .config || { echo "CONFIG_$option was not taken" && exit 1; }
    done
    make -s -j"$(nproc)" ARCH=um linux
  ) >"$into/log" 2>&1 || { tail -20 "$into/log" >&2 && skip "User Mode Linux could not be built"; }
  strip -o "$into/image" "$source/linux"
  rm -rf "$source" "$into"/{deb,tools}
}

prepare_uml() {
  local into=$cache/uml
  [[ -e $into/image ]] || build_uml
  rm -rf "$into/initramfs"
  pack_initramfs "$into"
  touch "$into/ready"
}

prepare() {
  local engine=kernel
  ((uml)) && engine=uml
  [[ $(uname -m) == x86_64 ]] || skip "the machine is for x86-64, this one is $(uname -m)"
  command -v apt-get dpkg-deb >/dev/null || skip "the packages are Debian's, and this system has no apt-get"
  mkdir -p "$cache"
  cache=$(readlink -f "$cache")
  exec 9>"$cache/lock"
  flock 9
  if [[ ! -e $cache/$engine/ready || $me -nt $cache/$engine/ready ]]; then
    apt-cache show qemu-system-x86 "$kernel_package" "$source_package" >/dev/null 2>&1 || apt-get -qq update ||
      skip "apt-get cannot reach Debian's packages"
    [[ -d $cache/guest ]] || unpack "$cache/guest" $guest_packages
    if ((uml)); then
      prepare_uml
    else
      command -v qemu-system-x86_64 >/dev/null || [[ -d $cache/qemu ]] || unpack "$cache/qemu" $qemu_packages
      prepare_kernel
    fi
  fi
  exec 9>&-
}
