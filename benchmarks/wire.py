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


def measure_wire(cluster, sender=0, receiver=1, seconds=1.0):
    """Measures between two hosts of an `EmulatedCluster`; returns a `Wire`."""
    hosts = [sender, receiver]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="byteps_bench_"))
        # Two pairs, so that each way has processes of its own: one that sent and received would be
        # slower than the wire where that is fast.
        pairs = []
        for number, (first, second) in enumerate((hosts, hosts[::-1])):
            path = pathlib.Path(folder) / str(number)
            path.mkdir()
            namespaces = [cluster.namespaces[first], cluster.namespaces[second]]
            pair = Session("benchmarks.programs.wire", [environment()] * 2, path, namespaces)
            pairs.append(stack.enter_context(pair))
            port = pair.call("listen")[1]
            ends = [cluster.addresses[second], None]
            pair.call_each("connect", [{"address": end, "port": port} for end in ends])
        trips = pairs[0].call_each(
            "there_and_back", [{"first": True, "count": 50}, {"first": False, "count": 50}]
        )[0]
        directions = [
            {"send": True, "receive": False, "seconds": seconds},
            {"send": False, "receive": True, "seconds": seconds},
        ]

        def transfer(pair):
            return pair.call_each("transfer", directions)[1]

        one_way = [transfer(pairs[0]) for _ in range(_REPETITIONS)]
        with concurrent.futures.ThreadPoolExecutor(len(pairs)) as pool:
            both = [list(pool.map(transfer, pairs)) for _ in range(_REPETITIONS)]
    return Wire(max(one_way), max(map(min, both)), statistics.median(trips))
