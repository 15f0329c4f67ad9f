"""Memory of a job that runs for long: workers that train, two servers and the scheduler.

    python -m tests.soak --minutes 30 [--write docs/reliability]

Looks at the resident memory of every process while they train, and fits a line to what comes after
the warm-up. Exits with 1 if that of a process rises by 1 MB a minute or more, or the training goes
wrong. With `--compiled` XLA compiles the steps. With `--gpus` each worker is a host with a GPU, and
XLA compiles, too. With `--write` it writes soak.json and soak.png.
"""

import json
import os
import pathlib
import string
import time

import numpy as np
import psutil
from absl import app, flags

from benchmarks import options
from tests.cluster import Cluster, describe
from tests.gpu.test_gpu import GPUS, on_gpus
from tests.soak import programs

SERVERS = 2
LIMIT_MB_PER_MINUTE = 1.0
_WARM_UP = 0.25  # of the time: TensorFlow's allocators and caches grow in the first epochs
_START_SECONDS = 300


_MINUTES = flags.DEFINE_float("minutes", 30.0, "of training")
_INTERVAL = flags.DEFINE_float("interval", 5.0, "seconds between two looks", lower_bound=0.0)
_WORKERS = flags.DEFINE_integer("workers", 3, "that train", lower_bound=1)
_COMPILED = flags.DEFINE_boolean("compiled", False, "jit_compile=True")
_GPUS = flags.DEFINE_boolean("gpus", False, "train on GPUs")
_ALONE = flags.DEFINE_boolean("alone", False, "one worker, without the strategy")
_WRITE = flags.DEFINE_string("write", None, "the folder for soak.json and soak.png")


def main():
    minutes, alone = _MINUTES.value, _ALONE.value
    if minutes * 60 < 8 * _INTERVAL.value:
        raise app.UsageError("the time is too short for a line through what is seen")
    if _GPUS.value and not GPUS:
        raise app.UsageError("--gpus: this machine has no NVIDIA GPU")
    arguments = [minutes * 60, True if _COMPILED.value else "auto", alone]
    workers = 1 if alone else _WORKERS.value
    result = run(minutes, _INTERVAL.value, workers, arguments, _GPUS.value)
    result["alone"] = alone
    for label, slope in result["mb_per_minute"].items():
        print(f"{label}: {result['mb'][label][-1]:.1f} MB, {slope:+.3f} MB/min")
    print(f"{result['minutes']:.1f} minutes, {result['steps']} steps, losses {result['losses']}")
    for first, last in filter(None, result["gpu_mb"]):
        print(f"GPU memory in use: {first} MB after the first epoch, {last} MB after the last")
    if _WRITE.value:
        folder = pathlib.Path(_WRITE.value)
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in result.items()]
        (folder / "soak.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
        plot(result, folder / "soak.png")
    largest = max(result["mb_per_minute"].values())
    return largest < LIMIT_MB_PER_MINUTE and result["losses"][1] < result["losses"][0]


def run(minutes, interval, workers, arguments, gpus=False):
    """Runs `programs.train`; returns what was measured, as JSON has it."""
    env = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
    if gpus:
        env = on_gpus(string.ascii_lowercase[:workers])
    with Cluster(programs.train, workers, SERVERS, env, arguments) as cluster:
        for worker in cluster.workers:
            worker.wait_for_output("training", _START_SECONDS)
        processes = {p.label: psutil.Process(p.popen.pid) for p in cluster.processes()}
        begin = time.monotonic()
        looks, memory = [], {label: [] for label in processes}
        while time.monotonic() - begin < minutes * 60 - interval:
            looks.append(round((time.monotonic() - begin) / 60, 3))
            for label, process in processes.items():
                memory[label].append(round(process.memory_info().rss / 1e6, 2))
            time.sleep(interval)
        outcomes = cluster.wait(_START_SECONDS)
    assert all(outcome.code == 0 for outcome in outcomes), describe(outcomes)
    results = [outcome.result for outcome in outcomes if outcome.label.startswith("worker")]
    gpu_mb = [result.pop("gpu_mb") for result in results]
    assert all(result == results[0] for result in results), results
    first = int(len(looks) * _WARM_UP)
    return {
        "minutes": minutes,
        "workers": workers,
        "cores": len(os.sched_getaffinity(0)),
        **results[0],
        "gpu_mb": gpu_mb,
        "warm_up_minutes": looks[first],
        "mb_per_minute": {
            label: round(float(np.polyfit(looks[first:], values[first:], 1)[0]), 4)
            for label, values in memory.items()
        },
        "at_minute": looks,
        "mb": memory,
    }


def plot(result, path):
    """Memory over time, workers above and the small processes below."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (upper, lower) = pyplot.subplots(2, 1, sharex=True, figsize=(8, 6))
    for label, values in result["mb"].items():
        axes = upper if label.startswith("worker") else lower
        slope = result["mb_per_minute"][label]
        axes.plot(result["at_minute"], np.array(values), label=f"{label} ({slope:+.3f} MB/min)")
    for axes in (upper, lower):
        axes.axvline(result["warm_up_minutes"], color="grey", linewidth=0.8, linestyle=":")
        axes.set_ylabel("resident memory (MB)")
        axes.set_ylim(0, 1.25 * max(line.get_ydata().max() for line in axes.lines[:-1]))
        axes.legend(loc="lower right", fontsize="small")
    lower.set_xlabel("minutes of training; the dotted line is the end of the warm-up")
    upper.set_title(f"{result['workers']} workers, {SERVERS} servers, {result['steps']} steps")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    options.run(main)
