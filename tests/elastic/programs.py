"""What the workers of elastic jobs run in tests that need no TensorFlow: sums that must be right.

`python -m tests.elastic.programs NAME` is a worker. Each step adds up ones over all workers, which
gives the number of workers; each fifth is a commit. It ends when TESTS_STOP_FILE exists. What it
prints is what tests wait for.
"""

import os
import signal
import sys
import time

import numpy as np

import tf_byteps
from tests.codec import sums
from tf_byteps import _engine, runtime
from tf_byteps.rendezvous import client, messages

_COMMIT = 5
_STEP_SECONDS = 0.01
_LENGTH = 20_000


def count(compression=""):
    """Counts steps, through all changes of the workers.

    Args:
        compression: a key of `sums.CODECS`: compressed sums are checked in each step, too.
    """
    tf_byteps.init()
    committed = 0
    while True:
        try:
            committed = _from_first(committed)
            place = f"rank {tf_byteps.rank()} of {tf_byteps.size()}"
            print(f"member {os.environ['BYTEPS_MEMBER']}: {place} from {committed}", flush=True)
            is_done, committed = _count(committed, compression)
            if is_done:
                break
        except _engine.EngineError as error:
            assert error.code == "UNAVAILABLE", error
            print(f"lost: {error}", flush=True)
        runtime.leave_epoch()
        tf_byteps.init()
    print(f"finished with {tf_byteps.size()}", flush=True)
    tf_byteps.shutdown()


def vanish():
    """Counts, but the second worker dies when it has the address book, before it connects."""
    if os.environ["BYTEPS_MEMBER"] == "1":
        _engine.start_worker = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    count()


def vanish_early():
    """Counts, but the second worker dies when it gets the address book, before it says so."""
    if os.environ["BYTEPS_MEMBER"] == "1":
        client._Line.receive = _die_of_the_book
    count()


_receive = client._Line.receive


def _die_of_the_book(self: client._Line, timeout: float) -> messages.Message | None:
    message = _receive(self, timeout)
    if isinstance(message, messages.Assigned):
        os.kill(os.getpid(), signal.SIGKILL)
    return message


def fail_on(address):
    """Counts, but cannot work on one host."""
    if os.environ["SSH_CONNECTION"].split()[2] == address:
        fail()
    count()


def fail():
    """A worker that cannot work."""
    print("failing", flush=True)
    sys.exit(3)


def exit_first(code):
    """Counts, but the first worker calls `sys.exit`."""
    if os.environ["BYTEPS_MEMBER"] == "0":
        tf_byteps.init()
        sys.exit(int(code))
    count()


def exit_in_function(code):
    """Trains by `elastic.run`; in one worker the function calls `sys.exit`."""
    import tensorflow as tf

    state = tf_byteps.elastic.ObjectState(step=0)

    @tf_byteps.elastic.run
    def train(state):
        member = os.environ["BYTEPS_MEMBER"]
        print(f"member {member}: rank {tf_byteps.rank()} of {tf_byteps.size()}", flush=True)
        while True:
            total = tf_byteps.push_pull(tf.ones(3), name="x", op=tf_byteps.Sum)
            assert total.numpy().tolist() == [tf_byteps.size()] * 3
            state.step += 1
            state.commit()
            if member == "1" and state.step == 5:
                sys.exit(int(code))
            if _sum("stop", np.array([os.path.exists(os.environ["TESTS_STOP_FILE"])], np.float32)):
                return

    train(state)
    print(f"finished with {tf_byteps.size()}", flush=True)


def end(how, who="all"):
    """Exchanges for a moment, then ends in one of some ways.

    Args:
        how: an exit code, "raise", "kill" or "fall": off the end, without `shutdown`.
        who: "one" worker, rank 1; the other exchanges until that fails and leaves with code 4.
    """
    tf_byteps.init()
    for _ in range(20):
        _sum("steps", np.ones(10, np.float32))
    if who == "one" and tf_byteps.rank() != 1:
        try:
            while True:
                _sum("steps", np.ones(10, np.float32))
        except _engine.EngineError:
            sys.exit(4)
    if how == "raise":
        raise ValueError("an error of the program")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how != "fall":
        sys.exit(int(how))


def _count(step, compression):
    """Returns whether all is done, and the last commit."""
    compressed = sums.Exchanges(compression, "compressed", _LENGTH) if compression else None
    while True:
        for _ in range(_COMMIT):
            total = _sum("steps", np.ones(1000, np.float32))
            np.testing.assert_array_equal(total, tf_byteps.size())
            if compressed is not None:
                gradients = [sums.gradient(r, step, _LENGTH) for r in range(tf_byteps.size())]
                total = _sum("compressed", gradients[tf_byteps.rank()], compression)
                np.testing.assert_array_equal(total, compressed.next(gradients))
            time.sleep(_STEP_SECONDS)
            step += 1
        wishes = [bool(runtime.coming_change()), os.path.exists(os.environ["TESTS_STOP_FILE"])]
        change, stop = _sum("wishes", np.array(wishes, np.float32))
        if change or stop:
            return bool(stop), step


def _from_first(value):
    mine = value if tf_byteps.rank() == 0 else 0
    return int(_sum("from first", np.array([mine], np.float32))[0])


def _sum(name, array, codec=""):
    return _engine.exchange(array, dtype="float32", name=name, codec=codec).wait(30)


if __name__ == "__main__":
    programs = {
        f.__name__: f
        for f in (count, end, exit_first, exit_in_function, fail, fail_on, vanish, vanish_early)
    }
    programs[sys.argv[1]](*sys.argv[2:])
