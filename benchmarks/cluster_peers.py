"""One tensor of 64 MB over an emulated network: tf_byteps with servers, against all-reduces.

tf_byteps has as many server hosts as workers; the peers have nothing to run there. Their processes
live beside tf_byteps's on the same emulated hosts, and take turns.

    python -m benchmarks.cluster_peers --workers 4
"""

import contextlib
import tempfile

from absl import flags

from benchmarks import options, peers, report
from benchmarks.cluster import EmulatedCluster, why_unavailable
from benchmarks.jobs import Job
from benchmarks.loopback import duration
from benchmarks.measure import Runs, interleaved
from benchmarks.models import FLOAT_BYTES
from benchmarks.report import Row
from benchmarks.steps import mirrored_session

_BYTES = 64 * 2**20
_PORT = 29431
_FIGURE = "push_pull, speed against the faster peer"
_TARGET = (">=", 1.4)
_GOAL = "cluster peers"


@contextlib.contextmanager
def _competitors(cluster, workers, servers):
    elements = _BYTES // FLOAT_BYTES
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="byteps_bench_"))
        job = Job("benchmarks.programs.engine", workers, servers, True, cluster)
        job = stack.enter_context(job)
        job.workers.call("join")
        job.workers.call("prepare", group="all", tensors=[["tensor", [elements]]])
        run = {"tf_byteps": lambda: duration(job.workers.call("exchange", group="all"))}
        mirrored = stack.enter_context(
            mirrored_session("benchmarks.programs.tensorflow_exchanges", workers, folder, cluster)
        )
        mirrored.call("join", strategy="mirrored")
        mirrored.call("build_all_reduce", elements=elements)
        run["MultiWorkerMirroredStrategy"] = lambda: duration(
            mirrored.call("run", what="all_reduce")
        )
        if not peers.TORCH.why_missing:
            gloo = stack.enter_context(
                peers.gloo_session("benchmarks.programs.gloo", workers, folder, cluster, _PORT)
            )
            gloo.call("join")
            gloo.call("prepare", group="all", elements=elements)
            run["torch Gloo"] = lambda: duration(gloo.call("exchange", group="all"))
        yield run


def run(rounds, workers=4, gigabits=1.0):
    """Rows of all competitors, and of tf_byteps's speed against the better of them."""
    case = f"64 MB, {workers} workers, {gigabits:g} Gbit/s"
    reason = why_unavailable()
    if reason:
        return [Row(_FIGURE, case, None, _TARGET, reason, goal=_GOAL)]
    with EmulatedCluster(2 * workers, gigabits) as cluster:
        with _competitors(cluster, workers, workers) as competitors:
            for once in competitors.values():
                once()
            with report.progress() as bar:
                task = bar.add_task(case, total=rounds * len(competitors))
                times = interleaved(rounds, "s", competitors, lambda: bar.advance(task))
    rows = [Row("push_pull or all-reduce", f"{case}: {name}", r) for name, r in times.items()]
    others = [runs.values for name, runs in times.items() if name != "tf_byteps"]
    speeds = [min(best) / own for own, *best in zip(times["tf_byteps"].values, *others)]
    note = peers.TORCH.why_missing
    rows.append(Row(_FIGURE, case, Runs(tuple(speeds), "×"), _TARGET, note, goal=_GOAL))
    return rows


def main():
    rows = run(flags.FLAGS.rounds, flags.FLAGS.workers, flags.FLAGS.gigabits)
    return report.publish("cluster_peers", "Peers in an emulated cluster", rows)


if __name__ == "__main__":
    flags.DEFINE_integer("workers", 4, "hosts with a worker each", lower_bound=1)
    flags.DEFINE_float("gigabits", 1.0, "Gbit/s of each NIC, each way")
    flags.DEFINE_integer("rounds", 5, "turns of each competitor", lower_bound=1)
    options.run(main)
