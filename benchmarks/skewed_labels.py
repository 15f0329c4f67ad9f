"""What local steps lose if each worker has rows of some labels only.

    python -m benchmarks.skewed_labels

Four workers classify digits. Their rows are shuffled over all of them, or sorted by label, so
that each has two or three of the ten digits. Synchronous training does not care: in each step
there are rows of all.
"""

import os
import statistics

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from absl import flags

from benchmarks import options, report
from benchmarks.jobs import Job

_WORKERS = flags.DEFINE_integer("workers", 4, "their number", lower_bound=2)
_STEPS = flags.DEFINE_integer("steps", 256, "of each training", lower_bound=1)
_SEEDS = flags.DEFINE_integer("seeds", 3, "trainings of each case", lower_bound=1)
# Steps between rounds, and the outer optimizer; 0: synchronous.
_CASES = (
    (0, "average"),
    (4, "average"),
    (16, "average"),
    (64, "average"),
    (16, "diloco"),
    (64, "diloco"),
)


def measure(workers, steps, seeds):
    """Accuracies in percent, means of the seeds: by case, of shuffled and of sorted rows."""
    accuracies = {}
    with Job("benchmarks.programs.skewed_training", workers, 1) as job, report.progress() as bar:
        task = bar.add_task("trainings", total=2 * seeds * len(_CASES))
        job.workers.call("join", timeout=300)
        for local_steps, outer in _CASES:
            for is_sorted in (False, True):
                found = []
                for seed in range(seeds):
                    given = {
                        "is_sorted": is_sorted,
                        "local_steps": local_steps,
                        "outer": outer,
                        "steps": steps,
                        "seed": seed,
                    }
                    found.append(job.workers.call("train", timeout=600, **given)[0])
                    bar.advance(task)
                accuracies[local_steps, outer, is_sorted] = statistics.mean(found)
        job.workers.call("leave")
    return accuracies


def main():
    accuracies = measure(_WORKERS.value, _STEPS.value, _SEEDS.value)
    print("| steps between rounds | outer | shuffled rows | rows sorted by label |")
    print("|---|---|---|---|")
    for local_steps, outer in _CASES:
        shuffled, by_label = (
            accuracies[local_steps, outer, is_sorted] for is_sorted in (False, True)
        )
        what = (f"{local_steps}", f"`{outer}`") if local_steps else ("synchronous", "")
        print(f"| {what[0]} | {what[1]} | {shuffled:.1f} % | {by_label:.1f} % |")
    return True


if __name__ == "__main__":
    options.run(main)
