#!/usr/bin/env bash
# Runs a command in a virtual machine that has Soft-RoCE (rdma_rxe) devices: real verbs, no network card.
#
#   vm.sh [options] -- COMMAND [ARGUMENT...]   runs COMMAND in the machine; its exit status is ours
#   vm.sh --prepare                            only fetches the packages (once, about 180 MB)
#
# Debian's own kernel under qemu without hardware help, in about 5 s. The machine sees this one's files
# read-only (what is written goes to memory and is lost) and, over them, the tools of rdma-core; nothing is
# installed here. It has no network but lo and the pair veth0 - veth1, with 10.77.0.1 and the device rxe0 on
# veth0.
#
#   --two             also 10.77.1.1 and rxe1 on veth1; what goes between the devices are real UDP packets
#   --netem 'loss 1%' disturbs both ends of the pair (tc netem)
#   --mtu N           of the pair (default 4200, for RoCE's 4096; 1500 gives 1024)
#   --rw FOLDER       what the command writes there stays
#   --env NAME=VALUE  a variable; PATH, PYTHONPATH, VIRTUAL_ENV and BYTEPS_* go along by themselves
#   --memory MIB, --processors N, --timeout SECONDS (defaults 2048, 2, 300)
#
# Exit status: the command's; 77: no such machine can be had here, with the reason; 124: out of time; 125: the
# machine failed, with its console.
# RDMA_VM_CACHE: where the packages are kept (default: build/rdma-vm of the repository).
set -euo pipefail
export LC_ALL=C

me=$(readlink -f "$0")
cache=${RDMA_VM_CACHE:-$(dirname "$me")/../../build/rdma-vm}
memory=2048 processors=2 limit=300 mtu=4200 two=0 netem= prepare_only=0
shared=() variables=()

skip() { echo "rdma-vm: skipped: $*" >&2; exit 77; }
fail() { echo "rdma-vm: $*" >&2; exit 125; }

while (($#)); do
  case $1 in
    --two) two=1; shift ;;
    --netem) netem=$2; shift 2 ;;
    --mtu) mtu=$2; shift 2 ;;
    --rw) shared+=("$(readlink -f "$2")"); shift 2 ;;
    --env) variables+=("$2"); shift 2 ;;
    --memory) memory=$2; shift 2 ;;
    --processors) processors=$2; shift 2 ;;
    --timeout) limit=$2; shift 2 ;;
    --prepare) prepare_only=1; shift ;;
    -h | --help) sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$me"; exit 0 ;;
    --) shift; break ;;
    *) fail "unknown option $1" ;;
  esac
done

kernel_package=linux-image-6.12-amd64
# Those with rdma_rxe, in the order of loading; crc32_generic is one that modprobe does not know of.
modules="virtio_pci 9p 9pnet_virtio overlay veth sch_netem ib_uverbs rdma_ucm crc32_generic rdma_rxe"
guest_packages="libnl-3-200 libnl-route-3-200 libibverbs1 ibverbs-providers ibverbs-utils rdma-core librdmacm1
  libibverbs-dev python3-pyverbs perftest libpci3 libibumad3 busybox-static kmod libkmod2 iproute2 libbpf1 libbsd0
  libelf1 libmnl0 libcap2 libxtables12 libtirpc3 libdb5.3 libmd0"
qemu_packages="qemu-system-x86 qemu-system-common qemu-system-data seabios libaio1 libbrlapi0.8
  libcacard0 libcapstone4 libdaxctl1 libepoxy0 libexecs0 libfdt1 libfuse3-3 liborc-0.4-0
  libgstreamer-plugins-base1.0-0 libnl-3-200 libnl-route-3-200 libibverbs1 libndctl6 libopus0 libpmem1 librdmacm1
  libslirp0 libsndio7.0 libspice-server1 liburing2 libusb-1.0-0 libusbredirparser1 libvdeplug2"

# unpack FOLDER PACKAGE...: the packages' files, without installing them.
unpack() {
  local folder=$1 name deb
  shift
  rm -rf "$folder.new" "$folder.debs"
  mkdir -p "$folder.new"/usr/{bin,sbin,lib,lib64} "$folder.debs"
  for name in bin sbin lib lib64; do ln -s "usr/$name" "$folder.new/$name"; done
  (cd "$folder.debs" && apt-get -qq -o APT::Sandbox::User=root download "$@") ||
    skip "apt-get cannot download $*"
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

prepare_kernel() {
  local version into=$cache/kernel module path name
  version=$(apt-cache depends "$kernel_package" |
    sed -n 's/.*Depends: linux-image-\([0-9].*-amd64\)$/\1/p' | head -1)
  [[ -n $version ]] || skip "there is no package $kernel_package; it is Debian's"
  rm -rf "$into"
  mkdir -p "$into"/{files,deb,tools,initramfs/bin,initramfs/modules}
  (cd "$into/deb" && apt-get -qq -o APT::Sandbox::User=root download "linux-image-$version") ||
    skip "apt-get cannot download linux-image-$version"
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
  cp "$cache/guest/usr/bin/busybox" "$into/initramfs/bin/"
  ln -s busybox "$into/initramfs/bin/sh"
  print_init >"$into/initramfs/init"
  chmod +x "$into/initramfs/init"
  (cd "$into/initramfs" && find . | "$cache/guest/usr/bin/busybox" cpio -o -H newc 2>/dev/null) >"$into/image.initramfs"
  extract_kernel "$into"/files/boot/vmlinuz-* "$into/image"
  rm -rf "$into"/{files,deb,initramfs}
  echo "$version" >"$into/ready"
}

prepare() {
  [[ $(uname -m) == x86_64 ]] || skip "the machine is for x86-64, this one is $(uname -m)"
  command -v apt-get dpkg-deb >/dev/null || skip "the packages are Debian's, and this system has no apt-get"
  mkdir -p "$cache"
  cache=$(readlink -f "$cache")
  exec 9>"$cache/lock"
  flock 9
  if [[ ! -e $cache/kernel/ready || $me -nt $cache/kernel/ready ]]; then
    apt-cache show qemu-system-x86 "$kernel_package" >/dev/null 2>&1 || apt-get -qq update ||
      skip "apt-get cannot reach Debian's packages"
    [[ -d $cache/guest ]] || unpack "$cache/guest" $guest_packages
    command -v qemu-system-x86_64 >/dev/null || [[ -d $cache/qemu ]] || unpack "$cache/qemu" $qemu_packages
    prepare_kernel
  fi
  exec 9>&-
}

# The first program in the machine: mounts what the host shares, and the tools over it.
print_init() {
  cat <<'INIT'
#!/bin/sh
b=/bin/busybox
$b mkdir -p /proc /sys /dev /host /tools /changes /new
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
die() { echo "rdma-vm: $*"; $b poweroff -f; }
for module in $($b cat /modules/list); do $b insmod "/modules/$module" || echo "rdma-vm: no module $module"; done
share() { $b mount -t 9p -o "$3,trans=virtio,version=9p2000.L,msize=512000" "$1" "$2" || die "cannot mount $1"; }
share host /host ro,cache=loose
share tools /tools ro,cache=loose
$b mount -t tmpfs -o size=100% changes /changes
$b mkdir /changes/upper /changes/work
$b mount -t overlay -o lowerdir=/tools:/host,upperdir=/changes/upper,workdir=/changes/work root /new || die overlay
$b mkdir -p /new/proc /new/sys /new/dev /new/run /new/vm
for folder in proc sys dev; do $b mount -o bind /$folder /new/$folder; done
for link in fd fd/0:stdin fd/1:stdout fd/2:stderr; do $b ln -s "/proc/self/${link%:*}" "/new/dev/${link#*:}"; done
$b mkdir -p /new/dev/pts /new/dev/shm
$b mount -t devpts pts /new/dev/pts
$b mount -t tmpfs shm /new/dev/shm
$b mount -t tmpfs run /new/run
share run /new/vm rw,cache=none
$b chroot /new /bin/bash /vm/guest.sh </new/dev/null
$b sync
$b poweroff -f
INIT
}

# What it then runs: devices, and the command.
print_guest() {
  local index=0 folder name
  cat <<'GUEST'
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec >/dev/console 2>&1
ulimit -l unlimited
GUEST
  printf 'mtu=%q two=%q netem=%q\n' "$mtu" "$two" "$netem"
  for folder in ${shared[@]+"${shared[@]}"}; do
    printf 'mkdir -p %q; mount -t 9p -o cache=mmap,trans=virtio,version=9p2000.L,msize=512000 shared%d %q || exit 1\n' \
      "$folder" $index "$folder"
    index=$((index + 1))
  done
  cat <<'GUEST'
ip link set lo up
ip link add veth0 type veth peer name veth1
for end in veth0 veth1; do ip link set $end mtu $mtu up; done
ip addr add 10.77.0.1/24 dev veth0
if [ $two = 1 ]; then
  # Both ends are in one kernel, which would rather hand packets to itself. Only what comes in by an end counts as local.
  ip addr add 10.77.1.1/24 dev veth1
  for end in all default veth0 veth1; do
    echo 1 >/proc/sys/net/ipv4/conf/$end/accept_local
    echo 0 >/proc/sys/net/ipv4/conf/$end/rp_filter
  done
  ip route add 10.77.1.1 dev veth0 src 10.77.0.1 table 101
  ip route add 10.77.0.1 dev veth1 src 10.77.1.1 table 102
  ip rule add pref 10 iif veth0 lookup local
  ip rule add pref 11 iif veth1 lookup local
  ip rule add pref 20 from 10.77.0.1 to 10.77.1.1 lookup 101
  ip rule add pref 21 from 10.77.1.1 to 10.77.0.1 lookup 102
  ip rule add pref 100 lookup local
  ip rule del pref 0
  ip neigh replace 10.77.1.1 lladdr $(cat /sys/class/net/veth1/address) dev veth0 nud permanent
  ip neigh replace 10.77.0.1 lladdr $(cat /sys/class/net/veth0/address) dev veth1 nud permanent
  rdma link add rxe1 type rxe netdev veth1 || exit 1
  [ -z "$netem" ] || for end in veth0 veth1; do tc qdisc add dev $end root netem $netem || exit 1; done
fi
rdma link add rxe0 type rxe netdev veth0 || exit 1
for _ in $(seq 50); do grep -qs 0a4d:0001 /sys/class/infiniband/rxe0/ports/1/gids/1 && break; sleep 0.05; done
GUEST
  for name in PATH HOME LANG VIRTUAL_ENV PYTHONPATH ${!BYTEPS_*} ${!TF_*}; do
    [[ -z ${!name+x} ]] || printf 'export %s=%q\n' "$name" "${!name}"
  done
  for name in ${variables[@]+"${variables[@]}"}; do printf 'export %s=%q\n' "${name%%=*}" "${name#*=}"; done
  printf 'cd %q || exit 1\n' "$PWD"
  # By way of cat, so that what many processes print stays in order.
  echo 'mkfifo /run/out /run/err; cat /run/out >>/vm/out & out=$!; cat /run/err >>/vm/err & err=$!'
  printf '{ %s; } >/run/out 2>/run/err\nstatus=$?\n' "$(printf '%q ' "$@")"
  echo 'for _ in $(seq 40); do kill -0 $out 2>/dev/null || kill -0 $err 2>/dev/null || break; sleep 0.05; done'
  echo 'echo $status >/vm/status.new; mv /vm/status.new /vm/status'
}

prepare
((prepare_only)) && exit 0
(($#)) || fail "no command"

run=$(mktemp -d "${TMPDIR:-/tmp}/rdma-vm.XXXXXX")
children=()
cleanup() {
  local child
  for child in ${children[@]+"${children[@]}"}; do kill "$child" 2>/dev/null || true; done
  rm -rf "$run"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
: >"$run/out"
: >"$run/err"
print_guest "$@" >"$run/guest.sh"

qemu=(qemu-system-x86_64) libraries=${LD_LIBRARY_PATH:-}
if [[ -d $cache/qemu ]]; then
  qemu=("$cache/qemu/usr/bin/qemu-system-x86_64" -L "$cache/qemu/usr/share/qemu" -L "$cache/qemu/usr/share/seabios")
  libraries=$cache/qemu/usr/lib/x86_64-linux-gnu
fi
share() {
  echo "-fsdev local,id=$1,path=$2,security_model=none,multidevs=remap$3 -device virtio-9p-pci,fsdev=$1,mount_tag=$1"
}
devices=($(share host / ,readonly=on) $(share tools "$cache/guest" ,readonly=on) $(share run "$run" ""))
for index in ${shared[@]+"${!shared[@]}"}; do devices+=($(share "shared$index" "${shared[$index]}" "")); done
# no_timer_check: on a busy machine the kernel would take a late timer for a broken one.
LD_LIBRARY_PATH=$libraries timeout -k 5 "$limit" "${qemu[@]}" -M q35 -accel tcg,thread=multi -cpu max \
  -smp "$processors" -m "$memory" -nodefaults -no-user-config -display none -no-reboot -nic none \
  -serial "file:$run/console" -kernel "$cache/kernel/image" -initrd "$cache/kernel/image.initramfs" \
  -append "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check" "${devices[@]}" </dev/null >"$run/qemu" 2>&1 &
machine=$!
children+=("$machine")
tail -n +1 -s 0.1 -f --pid="$machine" "$run/out" &
children+=($!)
tail -n +1 -s 0.1 -f --pid="$machine" "$run/err" >&2 &
children+=($!)
ended=0
wait "$machine" || ended=$?
for child in "${children[@]:1}"; do wait "$child" || true; done
children=()
[[ ! -s $run/status ]] || exit "$(cat "$run/status")"
echo "rdma-vm: the machine left no exit status (qemu's: $ended)" >&2
tail -n 40 "$run/qemu" "$run/console" >&2 || true
((ended != 124 && ended != 137)) || exit 124
exit 125
