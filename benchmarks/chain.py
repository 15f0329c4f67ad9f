"""Small dependent exchanges in one tf.function, against the least that an exchange costs.

python -m benchmarks.chain
"""

from absl import flags

from benchmarks import native, options, report
from benchmarks.jobs import Job
from benchmarks.loopback import duration
from benchmarks.measure import interleaved, ratios
from benchmarks.models import FLOAT_BYTES
from benchmarks.report import Row

_LENGTH = 200
_BYTES = 4096
_WARMUPS = 3
_BARE_EXCHANGES = 4000
_GUIDE_MICROSECONDS = 250


def run(rounds, workers=2, servers=1, settings=None):
    """Rows of the chain, of the bare exchange, and of their ratio."""
    with Job(
        "benchmarks.programs.tensorflow_exchanges", workers, servers, settings=settings
    ) as job:
        job.workers.call("join")
        job.workers.call("build_chain", length=_LENGTH, elements=_BYTES // FLOAT_BYTES)

        def chain():
            return 1e6 * duration(job.workers.call("run", what="chain")) / _LENGTH

        def bare():
            return float(native.run("bare_exchange", _BYTES, _BARE_EXCHANGES))

        for _ in range(_WARMUPS):
            chain()
        bare()
        with report.progress() as bar:
            task = bar.add_task("chain", total=2 * rounds)
            times = interleaved(
                rounds, "µs", {"chain": chain, "bare": bare}, lambda: bar.advance(task)
            )
    case = f"{_LENGTH} of 4 KB, {workers} workers, {servers} server"
    return [
        Row(
            "dependent push_pulls in a tf.function, each",
            case,
            times["chain"],
            ("<=", _GUIDE_MICROSECONDS),
            "the limit is a guide",
        ),
        Row("bare exchange of three processes", "4 KB, epoll, TCP", times["bare"]),
        Row(
            "dependent push_pulls against the bare exchange",
            case,
            ratios(times["chain"], times["bare"]),
            ("<=", 2.0),
            goal="chain",
        ),
    ]


def main():
    rows = run(flags.FLAGS.rounds, servers=flags.FLAGS.servers)
    return report.publish("chain", "Chain of small exchanges", rows)


if __name__ == "__main__":
    flags.DEFINE_integer("rounds", 9, "turns of each competitor", lower_bound=1)
    flags.DEFINE_integer("servers", 1, "0: the workers host servers", lower_bound=0)
    options.run(main)
