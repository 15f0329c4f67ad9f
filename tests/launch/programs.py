"""Commands for the tests of bpslaunch: `python -m tests.launch.programs <name>`."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil

import tf_byteps
from tests.cluster import wait_until
from tf_byteps import _engine


def train():
    """One exchange; prints rank, size, local rank, local size and the sum of ranks."""
    tf_byteps.init()
    given = np.full(3, tf_byteps.rank(), np.float32)
    total = _engine.exchange(given, name="x").wait(30)[0]
    place = (tf_byteps.rank(), tf_byteps.size(), tf_byteps.local_rank(), tf_byteps.local_size())
    # In one piece: mpirun passes on what it reads, and lines of several ranks must not mix.
    sys.stdout.write(f"trained {' '.join(map(str, place))} {total}\n")
    sys.stdout.flush()


def train_steps(steps, end=""):
    """Steps of one gradient of 1000 numbers; with "kill" rank 1 does not say goodbye."""
    tf_byteps.init()
    for _ in range(int(steps)):
        _engine.exchange(np.ones(1000, np.float32), name="gradient/x").wait(30)
    if end:
        first = _process_of_rank_0()
        if tf_byteps.rank() == 1:
            wait_until(lambda: not psutil.pid_exists(first))
            os.kill(os.getpid(), signal.SIGKILL)


def _process_of_rank_0(pid=None):
    """The number of its process, or of another one that it gives, on all workers."""
    given = (pid or os.getpid()) if tf_byteps.rank() == 0 else 0
    return int(_engine.exchange(np.array([given]), name="pid").wait(30)[0])


def come_again(rounds, leaver_rounds=""):
    """Takes part in one job after the other; rank 1 in fewer of them, if it is told so."""
    mine = int(rounds)
    if leaver_rounds and os.environ["BYTEPS_GLOBAL_RANK"] == "1":
        mine = int(leaver_rounds)
    for number in range(mine):
        tf_byteps.init()
        given = np.full(3, tf_byteps.rank() + number, np.float32)
        total = _engine.exchange(given, name="x").wait(30)[0]
        sys.stdout.write(f"round {number}: {total}\n")
        sys.stdout.flush()
        tf_byteps.shutdown()


def only_rank_0_joins():
    """Rank 1 has nothing to do, it thinks."""
    if os.environ["BYTEPS_GLOBAL_RANK"] == "0":
        tf_byteps.init()


def train_when_asked():
    """SIGUSR1 has it go on."""
    signal.signal(signal.SIGUSR1, lambda *_: print("asked"))
    print("ready")
    signal.pause()
    train()


def stop_rank_1():
    """It is there, but answers nobody."""
    tf_byteps.init()
    _engine.exchange(np.ones(1), name="x").wait(30)
    if tf_byteps.rank() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    _engine.exchange(np.ones(1), name="y").wait(60)


def fail(code):
    """Rank 1 ends with a code, the others wait for it."""
    tf_byteps.init()
    if tf_byteps.rank() == 1:
        print("going to fail", file=sys.stderr)
        os._exit(int(code))
    _engine.exchange(np.ones(1), name="x").wait(30)


def leave_early():
    """Rank 0 ends well, and the others wait for it: they fail when the launcher has seen it end."""
    tf_byteps.init()
    left = _process_of_rank_0(os.getppid())  # the launcher's own child
    if tf_byteps.rank() == 0:
        sys.exit(0)
    try:
        _engine.exchange(np.ones(1), name="y").wait(30)
    finally:
        wait_until(lambda: not psutil.pid_exists(left))


def fail_slowly():
    """Rank 1 leaves a child that looks to the launcher as if rank 1 were still there."""
    if os.environ["BYTEPS_GLOBAL_RANK"] == "1" and "INNER" not in os.environ:
        command = [sys.executable, "-m", "tests.launch.programs", "fail_slowly"]
        code = subprocess.run(command, env={**os.environ, "INNER": "1"}, check=False).returncode
        time.sleep(0.5)
        sys.exit(code)
    tf_byteps.init()
    if tf_byteps.rank() == 1:
        os._exit(5)
    try:
        _engine.exchange(np.ones(1), name="x").wait(30)
    except _engine.EngineError as error:
        print(error)


def exchange_for(seconds):
    """All workers exchange for so long."""
    tf_byteps.init()
    print("exchanging", flush=True)
    deadline = time.monotonic() + float(seconds)
    while True:
        is_over = np.array([time.monotonic() > deadline], np.float32)
        if _engine.exchange(is_over, name="is over").wait(30)[0] > 0:
            return


def sleep_with_children():
    """Sleeps, in a child and in a grandchild that has left its process group, too."""
    subprocess.Popen(["sh", "-c", "setsid sleep 600 & sleep 600"])
    print("sleeping", flush=True)
    time.sleep(600)


def join_and_sleep():
    """Is in the job when the user ends it."""
    tf_byteps.init()
    print("sleeping", flush=True)
    time.sleep(600)


def stubborn():
    """Does not end when asked to."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("sleeping", flush=True)
    time.sleep(600)


def wait_in_init():
    """Rank 0 waits for the others, which never come."""
    if os.environ["BYTEPS_GLOBAL_RANK"] == "0":
        print("sleeping", flush=True)
        tf_byteps.init()
    time.sleep(600)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
