"""B: the TCP payload rate between two emulated hosts, measured before a benchmark uses them."""

import concurrent.futures
import contextlib
import dataclasses
import pathlib
import statistics
import tempfile

from benchmarks.jobs import environment
from benchmarks.sessions import Session

_REPETITIONS = 3


@dataclasses.dataclass(frozen=True)
class Wire:
    """What TCP carries between two hosts.

    Attributes:
        bytes_per_second: payload, one way, while the other way is idle: the best of some tries,
            because a B that comes out too low would flatter what is compared with it.
        both_ways: payload of the slower way while both are busy; the best of some tries, too.
        round_trip: seconds there and back, without load.
    """

    bytes_per_second: float
    both_ways: float
    round_trip: float

    def __str__(self):
        return (
            f"B = {self.bytes_per_second * 8e-9:.4f} Gbit/s of payload one way "
            f"({self.both_ways * 8e-9:.4f} while both ways are busy), "
            f"round trip {self.round_trip * 1e6:.0f} µs"
        )


def measure_wire(cluster, sender=0, receiver=1, seconds=1.0, connections=1):
    """Measures between two hosts of an `EmulatedCluster`; returns a `Wire`.

    Args:
        cluster: the `EmulatedCluster`.
        sender: number of the host that sends while only one way is busy.
        receiver: number of the other host.
        seconds: how long to send each time.
        connections: each way; one does not fill every wire of 25 Gbit/s.
    """
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="byteps_bench_"))
        # Two processes for each connection and way: one that sent and received would be slower than
        # the wire where that is fast.
        there = [_Pair(cluster, sender, receiver, folder, stack) for _ in range(connections)]
        back = [_Pair(cluster, receiver, sender, folder, stack) for _ in range(connections)]
        round_trip = there[0].round_trip()
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(2 * connections))

        def transfer(pairs):
            return list(pool.map(lambda pair: pair.transfer(seconds), pairs))

        one_way = [sum(transfer(there)) for _ in range(_REPETITIONS)]
        both = [transfer(there + back) for _ in range(_REPETITIONS)]
    slower = [min(sum(rates[:connections]), sum(rates[connections:])) for rates in both]
    return Wire(max(one_way), max(slower), round_trip)


class _Pair:
    """A process on each of two hosts, and a connection between them."""

    def __init__(self, cluster, sender, receiver, folder, stack):
        namespaces = [cluster.namespaces[sender], cluster.namespaces[receiver]]
        path = pathlib.Path(tempfile.mkdtemp(dir=folder))
        session = Session("benchmarks.programs.wire", [environment()] * 2, path, namespaces)
        self._session = stack.enter_context(session)
        port = session.call("listen")[1]
        ends = [cluster.addresses[receiver], None]
        session.call_each("connect", [{"address": end, "port": port} for end in ends])

    def round_trip(self):
        ends = [{"first": True, "count": 50}, {"first": False, "count": 50}]
        return statistics.median(self._session.call_each("there_and_back", ends)[0])

    def transfer(self, seconds):
        """Bytes of payload a second."""
        ends = [
            {"send": True, "receive": False, "seconds": seconds},
            {"send": False, "receive": True, "seconds": seconds},
        ]
        return self._session.call_each("transfer", ends)[1]
