"""Emulated hosts: network namespaces on a bridge, each with a NIC of limited rate.

    with EmulatedCluster(hosts=6, gigabits=1.0) as cluster:
        cluster.namespaces[0], cluster.addresses[0]

Needs root, and `ip` and `tc` (Debian's iproute2). A token bucket (`tc tbf`) limits both ends of
each host's cable, so that a host sends and receives at most at the given rate. What an earlier run
has left behind when it was killed is removed first.
"""

import json
import os
import re
import shutil
import subprocess
import sys

from benchmarks.sessions import BenchmarkError, within

_PREFIX = "byteps-bench"
_LEAST_BURST_BYTES = 131072
_BURST_SECONDS = 1e-3  # a bucket is filled as often as the kernel's timers allow
# How long a packet waits in front of the bucket at most: the buffer of the emulated switch.
_QUEUE_MILLISECONDS = 20
_MTU = 1500
_MANY_PROCESSORS = 8
# Linux's own default, whatever this machine's is: the figures must not depend on that.
_CONGESTION_CONTROL = "cubic"


def why_unavailable():
    """Why hosts cannot be emulated here, or ""."""
    if os.geteuid() != 0:
        return "emulated hosts need root (network namespaces); run as root"
    for tool in ("ip", "tc", "setpriv"):
        if shutil.which(tool) is None:
            return f"emulated hosts need `{tool}`: apt-get install iproute2 util-linux"
    probe = f"{_PREFIX}-{os.getpid()}-probe"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True).returncode != 0:
        return "this machine does not allow network namespaces (`ip netns add` fails)"
    subprocess.run(["ip", "netns", "delete", probe], check=True)
    return ""


def parsed_rate(text):
    """The rate of an option, in Gbit/s; None: "none", no limit."""
    return None if text == "none" else float(text)


def shown_rate(gigabits):
    """A rate as rows have it."""
    return "no limit" if gigabits is None else f"{gigabits:g} Gbit/s"


class EmulatedCluster:
    """Hosts on one switch. Use as a context manager.

    `namespaces`, `addresses` are those of the hosts; `switch` is the namespace with the other ends
    of their cables, port0, port1 and so on.

    Args:
        hosts: their number.
        gigabits: the rate of each NIC, each way, in Gbit/s; a number, None for no limit, or one
            (sent, received) pair for each host.
    """

    def __init__(self, hosts, gigabits):
        reason = why_unavailable()
        if reason:
            raise BenchmarkError(reason)
        self._name = f"{_PREFIX}-{os.getpid()}"
        self.switch = f"{self._name}-switch"
        self.namespaces = [f"{self._name}-{host}" for host in range(hosts)]
        self.addresses = [f"10.77.0.{host + 1}" for host in range(hosts)]
        single = gigabits is None or isinstance(gigabits, (int, float))
        self._rates = [(gigabits, gigabits)] * hosts if single else list(gigabits)

    def __enter__(self):
        _remove_leftovers()
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for namespace in [*self.namespaces, self.switch]:
            _remove(namespace)

    def _build(self):
        _run("ip", "netns", "add", self.switch)
        _run("ip", "-n", self.switch, "link", "add", "switch", "type", "bridge")
        _run("ip", "-n", self.switch, "link", "set", "switch", "up")
        for number, namespace in enumerate(self.namespaces):
            self._add_host(f"port{number}", namespace, self.addresses[number])
        self.set_rates(self._rates)

    def _add_host(self, port, namespace, address):
        _run("ip", "netns", "add", namespace)
        cable = f"link add {port} mtu {_MTU} type veth peer name eth0 mtu {_MTU} netns {namespace}"
        _run("ip", "-n", self.switch, *cable.split())
        _run("ip", "-n", self.switch, *f"link set {port} master switch up".split())
        _run("ip", "-n", namespace, *f"address add {address}/24 dev eth0".split())
        _run("ip", "-n", namespace, *"link set eth0 up".split())
        _run("ip", "-n", namespace, *"link set lo up".split())
        route = f"route replace 10.77.0.0/24 dev eth0 src {address} congctl {_CONGESTION_CONTROL}"
        _run("ip", "-n", namespace, *route.split())
        _keep_order(namespace, "eth0")
        _keep_order(self.switch, port)

    def set_rates(self, rates):
        """Limits each host's NIC; one (sent, received) pair of Gbit/s for each host."""
        for number, (sent, received) in enumerate(rates):
            _limit(self.namespaces[number], "eth0", sent)
            _limit(self.switch, f"port{number}", received)

    def set_rate(self, gigabits):
        """Limits all NICs to the same rate."""
        self.set_rates([(gigabits, gigabits)] * len(self.namespaces))

    def retransmitted(self):
        """Segments of TCP sent so far, and of those the ones sent again: (all, again), of all hosts
        together."""
        sent = again = 0
        for namespace in self.namespaces:
            shown = _run(*within(namespace), "cat", "/proc/net/snmp")
            names, values = (line.split() for line in shown.splitlines() if line.startswith("Tcp:"))
            numbers = dict(zip(names, values))
            sent += int(numbers["OutSegs"])
            again += int(numbers["RetransSegs"])
        return sent, again

    def counters(self):
        """What each NIC has carried: a list of (sent, received) bytes, by host."""
        counted = []
        for namespace in self.namespaces:
            shown = _run("ip", "-n", namespace, "-s", "-j", "link", "show", "eth0")
            statistics = json.loads(shown)[0]["stats64"]
            counted.append((statistics["tx"]["bytes"], statistics["rx"]["bytes"]))
        return counted


def _keep_order(namespace, device):
    """Lets each connection's packets be received on one processor, as a NIC with several queues
    does. A token bucket hands packets on from whichever processor finds it free; received there,
    they would overtake each other, and TCP would take that for loss."""
    processors = os.cpu_count()
    if processors < _MANY_PROCESSORS:
        return
    digits = f"{(1 << processors) - 1:x}"
    groups = [digits[max(0, end - 8) : end] for end in range(len(digits), 0, -8)]
    steering = f"/sys/class/net/{device}/queues/rx-0/rps_cpus"
    command = f"echo {','.join(reversed(groups))} > {steering}"
    try:
        _run(*within(namespace), "sh", "-c", command)
    except BenchmarkError as error:
        print(f"packets may overtake each other: {error}", file=sys.stderr)


def _limit(namespace, device, gigabits):
    if gigabits is None:
        command = ["tc", "-n", namespace, *f"qdisc delete dev {device} root".split()]
        subprocess.run(command, capture_output=True, timeout=30)  # there may be none
        return
    burst = max(_LEAST_BURST_BYTES, round(gigabits * 1e9 / 8 * _BURST_SECONDS))
    bucket = f"rate {round(gigabits * 1e6)}kbit burst {burst}"
    queue = f"latency {_QUEUE_MILLISECONDS}ms"
    _run("tc", "-n", namespace, *f"qdisc replace dev {device} root tbf {bucket} {queue}".split())


def _run(*command):
    result = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if result.returncode != 0:
        raise BenchmarkError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


def _remove(namespace):
    listed = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True)
    for pid in listed.stdout.split():
        try:
            os.kill(int(pid), 9)
        except ProcessLookupError:
            pass
    # The kernel removes a namespace's devices, and so their other ends, with it.
    subprocess.run(["ip", "netns", "delete", namespace], capture_output=True)


def _remove_leftovers():
    """Removes the namespaces of benchmarks that do not run any more."""
    for line in _run("ip", "netns", "list").splitlines():
        match = re.match(rf"({_PREFIX}-(\d+)-\w+)", line)
        if match and not os.path.exists(f"/proc/{match.group(2)}"):
            _remove(match.group(1))
