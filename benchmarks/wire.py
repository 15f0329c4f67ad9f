"""B: the TCP payload rate between two emulated hosts, measured before a benchmark uses them."""

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
        both_ways: payload of the slower way while both are busy.
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
    namespaces = [cluster.namespaces[sender], cluster.namespaces[receiver]]
    with tempfile.TemporaryDirectory(prefix="byteps_bench_") as folder:
        environments = [environment()] * 2
        with Session(
            "benchmarks.programs.wire", environments, pathlib.Path(folder), namespaces
        ) as ends:
            port = ends.call("listen")[1]
            ends.call_each(
                "connect",
                [
                    {"address": cluster.addresses[receiver], "port": port},
                    {"address": None, "port": port},
                ],
            )
            trips = ends.call_each(
                "there_and_back", [{"first": True, "count": 50}, {"first": False, "count": 50}]
            )[0]
            directions = [{"send": True, "receive": False}, {"send": False, "receive": True}]
            one_way = [
                ends.call_each("transfer", [{**d, "seconds": seconds} for d in directions])[1]
                for _ in range(_REPETITIONS)
            ]
            both = ends.call("transfer", send=True, receive=True, seconds=seconds)
    return Wire(max(one_way), min(both), statistics.median(trips))
