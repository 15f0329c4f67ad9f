"""What compression costs a training: the validation loss of a small character model against that
with float32.

    python -m benchmarks.compression_training --seeds 3
"""

import argparse
import sys

from benchmarks import report
from benchmarks.jobs import Job
from benchmarks.measure import Runs
from benchmarks.report import Row
from benchmarks.sessions import BenchmarkError

_FIGURE = "validation loss above float32's"
_PLAIN = "none"
# In percent. Those without error feedback are there to show what it is for.
_OF_BOTH = {"int8": 0.1, "fp8": 0.1, "int4": 0.6, "int4:feedback=1": 0.6, "topk:ratio=0.1": 0.6}
_UNBIASED = {"thc": 0.6, "dithering": 1.5, "dithering:natural=1": 0.6}
_TARGETS = {
    "sgd": {
        **_OF_BOTH,
        **_UNBIASED,
        "powersgd:rank=4": 2,
        "onebit": 1.5,
        "topk": 1.5,
        "randomk": 1.5,
    },
    "adam": {**_OF_BOTH, **_UNBIASED, "powersgd:rank=4": 5, "onebit": 4, "topk": 5, "randomk": 0.6},
}
_CODECS = (*_TARGETS["sgd"], "onebit:feedback=0", "topk:feedback=0")
_WITHOUT_FEEDBACK = (">=", 15)
# As in large models: several parts, and all matrices compressed.
_SETTINGS = {"BYTEPS_MIN_COMPRESS_BYTES": "4096", "BYTEPS_PARTITION_BYTES": str(4 * 16_384)}


def measure(workers, optimizer, seeds, steps, codecs=_CODECS):
    """Losses in nats: a list, by seed, of each compression."""
    losses = {compression: [] for compression in (_PLAIN, *codecs)}
    with Job("benchmarks.programs.character_training", workers, 2, settings=_SETTINGS) as job:
        job.workers.call("join")
        with report.progress() as bar:
            task = bar.add_task(_FIGURE, total=seeds * len(losses))
            for seed in range(seeds):
                for compression, of_seeds in losses.items():
                    of_workers = job.workers.call(
                        "train",
                        timeout=600,
                        optimizer=optimizer,
                        compression=compression,
                        seed=seed,
                        steps=steps,
                    )
                    if len(set(of_workers)) > 1:
                        raise BenchmarkError(f"{compression}: the workers' weights differ")
                    of_seeds.append(of_workers[0])
                    bar.advance(task)
        job.workers.call("leave")
    return losses


def _target(optimizer, compression):
    most = _TARGETS[optimizer].get(compression)
    return _WITHOUT_FEEDBACK if most is None else ("<=", most)


def run(workers, optimizer, seeds, steps, codecs=_CODECS):
    """Rows of the codecs, and losses."""
    losses = measure(workers, optimizer, seeds, steps, codecs)
    rows = [
        Row(
            _FIGURE,
            f"{workers} workers, {optimizer}, {steps} steps: {compression}",
            Runs(
                tuple(
                    100 * (loss / plain - 1)
                    for loss, plain in zip(losses[compression], losses[_PLAIN], strict=True)
                ),
                "%",
            ),
            _target(optimizer, compression),
            note=f"{sum(losses[compression]) / seeds:.4f} nats, "
            f"float32 {sum(losses[_PLAIN]) / seeds:.4f}",
        )
        for compression in codecs
    ]
    return rows, losses


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compression_training", description=__doc__
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--optimizer", choices=sorted(_TARGETS), default="sgd")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument(
        "--only", choices=_CODECS, nargs="+", default=_CODECS, metavar="COMPRESSION"
    )
    given = parser.parse_args(arguments)
    try:
        rows, losses = run(given.workers, given.optimizer, given.seeds, given.steps, given.only)
    except BenchmarkError as error:
        raise SystemExit(f"error: {error}") from None
    title = "Training with compressed gradients"
    return 0 if report.publish("compression_training", title, rows, losses) else 1


if __name__ == "__main__":
    sys.exit(main())
