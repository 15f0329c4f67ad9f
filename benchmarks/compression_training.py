"""What compression costs a training: the validation loss of a small character model, two workers,
SGD with momentum, against that with float32.

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
# In percent. That without error feedback is there to show what it is for.
_TARGETS = {
    "int8": ("<=", 0.1),
    "fp8": ("<=", 0.1),
    "int4": ("<=", 0.6),
    "int4:feedback=1": ("<=", 0.6),
    "onebit": ("<=", 1.5),
    "onebit:feedback=0": (">=", 15),
}
# As in large models: several parts, and all matrices compressed.
_SETTINGS = {"BYTEPS_MIN_COMPRESS_BYTES": "4096", "BYTEPS_PARTITION_BYTES": str(4 * 16_384)}
_LEARNING_RATE = 0.1


def measure(seeds, steps):
    """Losses in nats: a list, by seed, of each compression."""
    losses = {compression: [] for compression in (_PLAIN, *_TARGETS)}
    with Job("benchmarks.programs.character_training", 2, 2, settings=_SETTINGS) as job:
        job.workers.call("join")
        with report.progress() as bar:
            task = bar.add_task(_FIGURE, total=seeds * len(losses))
            for seed in range(seeds):
                for compression, of_seeds in losses.items():
                    first, second = job.workers.call(
                        "train",
                        timeout=600,
                        compression=compression,
                        seed=seed,
                        steps=steps,
                        learning_rate=_LEARNING_RATE,
                    )
                    if first != second:
                        raise BenchmarkError(f"{compression}: the workers' weights differ")
                    of_seeds.append(first)
                    bar.advance(task)
        job.workers.call("leave")
    return losses


def run(seeds, steps):
    """Rows of all codecs, and losses."""
    losses = measure(seeds, steps)
    rows = [
        Row(
            _FIGURE,
            f"{steps} steps: {compression}",
            Runs(
                tuple(
                    100 * (loss / plain - 1)
                    for loss, plain in zip(losses[compression], losses[_PLAIN], strict=True)
                ),
                "%",
            ),
            target,
            note=f"{sum(losses[compression]) / seeds:.4f} nats, "
            f"float32 {sum(losses[_PLAIN]) / seeds:.4f}",
        )
        for compression, target in _TARGETS.items()
    ]
    return rows, losses


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compression_training", description=__doc__
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1500)
    given = parser.parse_args(arguments)
    try:
        rows, losses = run(given.seeds, given.steps)
    except BenchmarkError as error:
        raise SystemExit(f"error: {error}") from None
    title = "Training with compressed gradients"
    return 0 if report.publish("compression_training", title, rows, losses) else 1


if __name__ == "__main__":
    sys.exit(main())
