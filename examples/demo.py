"""What `make demo` runs: two workers and a server train `demo_training.py`, then all is checked.

Ends with code 1 if a check fails.
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np

EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "demo_training.py")
WORKERS = 2
_TIMEOUT_SECONDS = 300
# The sum over workers rounds otherwise than one process does; a wrong sum differs by 0.1 and more.
_WEIGHT_TOLERANCE = 1e-3
# Else every process prints four lines about oneDNN, whatever the level of TensorFlow's log.
_QUIET = {"TF_ENABLE_ONEDNN_OPTS": "0"}


def main():
    with tempfile.TemporaryDirectory() as folder:
        print(f"{WORKERS} workers and a server train examples/demo_training.py", flush=True)
        train_on_workers(EXAMPLE, folder)
        print("one process trains the same for comparison", flush=True)
        reference = train_alone(folder)
        failed = [text for ok, text in check(read(folder), reference) if not report(ok, text)]
    return 1 if failed else 0


def train_on_workers(script, folder):
    """Runs a script with `--report` on two workers and a server.

    Args:
        script: path of `demo_training.py` or of something like it.
        folder: where the workers and the server write what `read` reads.

    Raises:
        subprocess.CalledProcessError: a process failed.
    """
    launch = [sys.executable, "-m", "tf_byteps.launch", "-np", str(WORKERS), "--servers", "1"]
    command = [*launch, sys.executable, script, "--report", folder]
    statistics = {"BYTEPS_SERVER_STATS_FILE": os.path.join(folder, "server.json")}
    environment = {**_QUIET, **os.environ, **statistics}
    subprocess.run(command, env=environment, check=True, timeout=_TIMEOUT_SECONDS)


def train_alone(folder):
    """The weights that one process, without any network, gets."""
    alone = os.path.join(folder, "alone")
    os.mkdir(alone)
    command = [sys.executable, EXAMPLE, "--report", alone]
    process = subprocess.run(
        command,
        env={**_QUIET, **os.environ},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
    )
    if process.returncode != 0:
        raise RuntimeError(f"one process alone failed:\n{process.stdout}{process.stderr}")
    return _weights(os.path.join(alone, "worker-0.npz"))


def read(folder):
    """The reports of the workers, their weights, and the server's counters."""
    paths = [os.path.join(folder, f"worker-{rank}") for rank in range(WORKERS)]
    reports = []
    for path in paths:
        with open(f"{path}.json") as file:
            reports.append(json.load(file))
    with open(os.path.join(folder, "server.0.json")) as file:
        server = json.load(file)
    return reports, [_weights(f"{path}.npz") for path in paths], server


def check(results, reference):
    """Checks a training of `demo_training.py`.

    Args:
        results: what `read` returned.
        reference: the weights of a single process.

    Returns:
        A list of pairs: whether it is as it must be, and a sentence about it.
    """
    reports, weights, server = results
    first = reports[0]
    gradients = [t for t in server["tensors"] if t["name"].startswith("gradient/")]
    pushed = sum(tensor["pushed_bytes"] for tensor in gradients)
    expected = first["gradient bytes"] * first["steps"] * WORKERS
    difference = max(float(np.abs(a - b).max()) for a, b in zip(weights[0], reference, strict=True))
    return [
        (
            first["test accuracy"] > 0.96,
            f"test accuracy {first['test accuracy']:.4f} (more than 0.96)",
        ),
        (first["samples per second"] > 0, f"{first['samples per second']:.0f} samples/s"),
        (
            all(_identical(weights[0], others) for others in weights[1:]),
            f"the {WORKERS} workers hold bit-identical weights",
        ),
        (
            difference < _WEIGHT_TOLERANCE,
            f"one process gets the same weights (largest difference {difference:.1e})",
        ),
        (
            _each_sample_once(reports),
            f"in each epoch every one of {first['training samples']} samples was used once, by "
            "one worker",
        ),
        (
            pushed == expected,
            f"{pushed} bytes pushed = {first['gradient bytes']} gradient bytes x "
            f"{first['steps']} steps x {WORKERS} workers ({expected})",
        ),
    ]


def report(ok, text):
    """Prints a line; returns `ok`."""
    print(f"{'ok    ' if ok else 'FAILED'}  {text}", flush=True)
    return ok


def _weights(path):
    with np.load(path) as arrays:
        return [arrays[name] for name in arrays.files]


def _identical(ours, theirs):
    return len(ours) == len(theirs) and all(
        a.tobytes() == b.tobytes() for a, b in zip(ours, theirs, strict=True)
    )


def _each_sample_once(reports):
    everything = list(range(1, reports[0]["training samples"] + 1))
    epochs = zip(*(each["samples"] for each in reports), strict=True)
    return all(sorted(sum(workers, [])) == everything and all(workers) for workers in epochs)


if __name__ == "__main__":
    sys.exit(main())
