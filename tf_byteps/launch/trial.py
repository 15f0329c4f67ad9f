"""`bpslaunch test`: a job of a few seconds, which says whether jobs work on these hosts."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

_PATIENCE_SECONDS = "120"
_STEPS = 10
_ROWS = 8  # of a worker in a step
_HOSTS = ("-H", "--hosts", "--hostfile", "--host-discovery-script", "-np", "--np", "--workers")
_DESCRIPTION = """\
Starts a job whose workers add up a tensor and train a small model for ten
steps, and checks both.

    bpslaunch test
    bpslaunch test -H host1:4,host2:4 --servers 2

It takes all options of bpslaunch. Without hosts and -np two workers run on
this machine. It prints a line if all is well, or else what the job has
printed, and ends with the job's exit code.
"""


def main(words: Sequence[str]) -> int:
    """Runs the command.

    Args:
        words: options of bpslaunch.

    Returns:
        Its exit code: 0 if all is well.
    """
    if {"-h", "--help"} & set(words):
        argparse.ArgumentParser(
            prog="bpslaunch test",
            usage="bpslaunch test [options of bpslaunch]",
            description=_DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        ).parse_args(words)
    has_hosts = any(word.partition("=")[0] in _HOSTS for word in words)
    in_batch = "SLURM_JOB_NODELIST" in os.environ
    default = [] if has_hosts or in_batch else ["-np", "2"]
    launcher = [sys.executable, "-m", "tf_byteps.launch", "--quiet", *default, *words]
    command = [*launcher, "--", sys.executable, "-m", "tf_byteps.launch.trial"]
    environment = {"BYTEPS_RENDEZVOUS_TIMEOUT": _PATIENCE_SECONDS, "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        command,
        env={**environment, **os.environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    said = [line.partition(_MARK)[2] for line in done.stdout.splitlines() if _MARK in line]
    if done.returncode == 0 and said:
        print(f"bpslaunch test: all is well: {said[0]}")
        return 0
    print(done.stdout, end="")
    print("bpslaunch test: jobs do not work here: see above", file=sys.stderr)
    return done.returncode or 1


_MARK = "bpslaunch test found: "


def _work() -> None:
    """In a worker."""
    import keras
    import numpy as np
    import tensorflow as tf

    import tf_byteps

    with tf_byteps.BytePSStrategy().scope():
        model = keras.Sequential([keras.Input([16]), keras.layers.Dense(8), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    rank, size = tf_byteps.rank(), tf_byteps.size()
    total = tf_byteps.push_pull(tf.fill([1000], float(rank)), op=tf_byteps.Sum, name="test").numpy()
    if not (total == size * (size - 1) / 2).all():
        raise SystemExit(f"the sum of the ranks of {size} workers is {total[0]}")
    rows = np.random.default_rng(1).normal(size=[_STEPS * _ROWS * size, 16]).astype(np.float32)
    history = model.fit(rows, rows[:, :1], batch_size=_ROWS * size, epochs=1, verbose=0)  # pyright: ignore[reportArgumentType]
    steps, loss = int(model.optimizer.iterations), history.history["loss"][0]
    if steps != _STEPS or not np.isfinite(loss):
        raise SystemExit(f"{steps} of {_STEPS} steps are done, with a loss of {loss}")
    own = np.concatenate([weight.ravel() for weight in model.get_weights()])
    all_of_them = tf_byteps.allgather(tf.constant(own[None]), name="test weights").numpy()
    if not (all_of_them == own).all():
        raise SystemExit("the workers' weights differ after the steps")
    if rank == 0:
        devices = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        print(
            f"{_MARK}{size} worker{'' if size == 1 else 's'} ({devices}) added up a tensor and "
            f"trained {_STEPS} steps with equal weights"
        )


if __name__ == "__main__":
    _work()
