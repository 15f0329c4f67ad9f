#!/usr/bin/env bash
# Runs a command in a virtual machine that has Soft-RoCE (rdma_rxe) devices: real verbs, no network card.
#
#   vm.sh [options] -- COMMAND [ARGUMENT...]   runs COMMAND in the machine; its exit status is ours
#   vm.sh --prepare                            only fetches the packages (once, about 180 MB)
#
# Debian's own kernel under qemu without hardware help, in about 5 s. With --uml the same kernel's source as User
# Mode Linux, built once: 1 s, and programs run at this machine's own speed, but on one processor. The machine
# sees this one's files read-only (what is written goes to memory and is lost) and, over them, the tools of
# rdma-core; nothing is installed here. It has no network but lo and the pair veth0 - veth1, with 10.77.0.1 and
# the device rxe0 on veth0.
#
#   --uml             User Mode Linux instead of qemu
#   --two             also 10.77.1.1 and rxe1 on veth1; what goes between the devices are real UDP packets
#   --netem 'loss 1%' disturbs both ends of the pair (tc netem)
#   --mtu N           of the pair (default 4200, for RoCE's 4096; 1500 gives 1024)
#   --exact           (qemu) the kernel keeps exact times of what programs and what it does itself take on processor 1
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
memory=2048 processors=2 limit=300 mtu=4200 two=0 netem= prepare_only=0 uml=0 exact=
shared=() variables=()

skip() { echo "rdma-vm: skipped: $*" >&2; exit 77; }
fail() { echo "rdma-vm: $*" >&2; exit 125; }

while (($#)); do
  case $1 in
    --uml) uml=1; shift ;;
    --two) two=1; shift ;;
    --netem) netem=$2; shift 2 ;;
    --mtu) mtu=$2; shift 2 ;;
    --exact) exact=" nohz_full=1"; shift ;;
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

. "$(dirname "$me")/vm_prepare.sh"

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
for module in $($b cat /modules/list 2>/dev/null); do
  $b insmod "/modules/$module" || echo "rdma-vm: no module $module"
done
share() { # NAME PLACE OPTIONS: a folder of the host; User Mode Linux is told its path
  path=$($b sed -n "s/.* share_$1=\([^ ]*\).*/\1/p" /proc/cmdline)
  if [ -n "$path" ]; then
    $b mount -t hostfs -o "${3%%,*},$path" "$1" "$2" || die "cannot mount $1"
  else
    $b mount -t 9p -o "$3,trans=virtio,version=9p2000.L,msize=512000" "$1" "$2" || die "cannot mount $1"
  fi
}
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
  local index=0 folder name out=/vm/out err=/vm/err
  cat <<'GUEST'
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec >/dev/console 2>&1
ulimit -l unlimited
GUEST
  printf 'mtu=%q two=%q netem=%q\n' "$mtu" "$two" "$netem"
  for folder in ${shared[@]+"${shared[@]}"}; do
    if ((uml)); then
      printf 'mkdir -p %q; mount -t hostfs -o rw,%q none %q || exit 1\n' "$folder" "$folder" "$folder"
    else
      printf 'mkdir -p %q; mount -t 9p -o cache=mmap,trans=virtio,version=9p2000.L,msize=512000 shared%d %q || exit 1\n' \
        "$folder" $index "$folder"
    fi
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
  # A program of its own, because an interface that goes down forgets them.
  cat >/run/routes <<'ROUTES'
  ip route replace 10.77.1.1 dev veth0 src 10.77.0.1 table 101
  ip route replace 10.77.0.1 dev veth1 src 10.77.1.1 table 102
  ip neigh replace 10.77.1.1 lladdr $(cat /sys/class/net/veth1/address) dev veth0 nud permanent
  ip neigh replace 10.77.0.1 lladdr $(cat /sys/class/net/veth0/address) dev veth1 nud permanent
ROUTES
  sh /run/routes
  ip rule add pref 10 iif veth0 lookup local
  ip rule add pref 11 iif veth1 lookup local
  ip rule add pref 20 from 10.77.0.1 to 10.77.1.1 lookup 101
  ip rule add pref 21 from 10.77.1.1 to 10.77.0.1 lookup 102
  ip rule add pref 100 lookup local
  ip rule del pref 0
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
  # User Mode Linux writes what goes to its terminals to this machine's files at once.
  if ((uml)); then
    out=/dev/tty1 err=/dev/tty2
    echo 'for number in 1 2; do stty -F /dev/tty$number raw -echo; done; exec 8<>/dev/tty1 9<>/dev/tty2'
  fi
  # By way of cat, so that what many processes print stays in order.
  echo "mkfifo /run/out /run/err; cat /run/out >>$out & out=\$!; cat /run/err >>$err & err=\$!"
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

start_qemu() {
  local qemu=(qemu-system-x86_64) libraries=${LD_LIBRARY_PATH:-} devices index
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
    -append "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check$exact" "${devices[@]}" </dev/null >"$run/log" 2>&1 &
  machine=$!
}

start_uml() {
  timeout -k 5 "$limit" "$cache/uml/image" mem="${memory}M" initrd="$cache/uml/image.initramfs" uml_dir="$run/" \
    share_host=/ share_tools="$cache/guest" share_run="$run" con0=null,fd:7 con1=null,fd:8 con2=null,fd:9 \
    quiet panic=-1 </dev/null >"$run/log" 2>&1 7>"$run/console" 8>>"$run/out" 9>>"$run/err" &
  machine=$!
}

if ((uml)); then start_uml; else start_qemu; fi
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
echo "rdma-vm: the machine left no exit status (its own: $ended)" >&2
tail -n 40 "$run/log" "$run/console" >&2 || true
((ended != 124 && ended != 137)) || exit 124
exit 125
