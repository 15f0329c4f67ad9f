"""Local steps with a quorum while a worker is lost and another comes: see test_outer_states.py.

`python -m tests.elastic.outer_programs FOLDER LOCAL_STEPS` is a worker. It moves a weight by
numbers of its own and writes what it has brought to which round, and the weights after each, into
FOLDER. Worker 2 kills itself between two rounds. The others go on until some steps after another
one has come.
"""

import json
import os
import pathlib
import signal
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

if __name__ == "__main__":
    from tests import quick_start

    quick_start.leave_out_packages("jax")

import keras
import numpy as np

import tf_byteps as bps
from tf_byteps.local_steps import quorum

_DIES_AFTER, _STEPS_TOGETHER = 14, 40
_PAUSE = 0.02


class Recorded:
    """What this worker brings to rounds that end, and all rounds whose result it has."""

    def __init__(self):
        self.brought, self.rounds, self.rejoined = [], {}, []
        self._open = self._fragment = None
        meet, end = quorum.QuorumFragment.meet, quorum.QuorumFragment.end
        go_on = quorum.QuorumFragment.go_on

        def recorded_meet(fragment, makes_no_more_steps):
            rows = int(fragment._rows) - fragment._seen_rows
            moved = np.array(fragment._global[0]) - fragment._variables[0].numpy()
            attendance = meet(fragment, makes_no_more_steps)
            self._open, self._fragment = (rows * moved.flat[0], attendance.rows), fragment
            return attendance

        def recorded_end(fragment, own_share):
            before = np.array(fragment._global[0]).flat[0]
            ended = end(fragment, own_share)
            self.brought.append(self._open[0])  # if the round has no rows, to a later one
            if ended is not None:
                after = np.array(fragment._global[0]).flat[0]
                self.rounds[fragment.rounds_done[0]] = self._open[1], before, after
            self._open = None
            return ended

        def recorded_go_on(fragment, root_rank, rounds, rows):
            unsent = fragment._unsent(rounds > fragment.rounds_done[0])
            is_kept = fragment._has_round and np.array(unsent[0]).flat[0] == 0
            if self._open is not None and (is_kept or fragment._sent is None):
                self.brought.append(self._open[0])
            self._open = None
            go_on(fragment, root_rank, rounds, rows)
            self.rejoined.append([bps.size(), fragment.rounds_done])

        quorum.QuorumFragment.meet = recorded_meet
        quorum.QuorumFragment.end = recorded_end
        quorum.QuorumFragment.go_on = recorded_go_on

    def _late(self):
        """What this worker has brought too late, and has not sent with a later round yet."""
        carried = self._fragment._carried if self._fragment is not None else []
        return float(np.array(carried[0]).flat[0]) if carried else 0.0

    def write(self, folder, steps):
        path = folder / f"record-{os.environ['BYTEPS_MEMBER']}.json"
        found = {
            "brought": self.brought,
            "late": self._late(),
            "rounds": self.rounds,
            "rejoined": self.rejoined,
            "steps": steps,
        }
        path.write_text(json.dumps(found))


def main(folder, local_steps):
    folder, member = pathlib.Path(folder), int(os.environ["BYTEPS_MEMBER"])
    recorded = Recorded()
    dense = keras.layers.Dense(3, use_bias=False, dtype="float64", kernel_initializer="zeros")
    model = keras.Sequential([keras.Input([2]), dense])
    model.compile(keras.optimizers.SGD(1.0))
    weight = model.trainable_variables[0].value

    def make_outer():
        return bps.OuterSync(model.trainable_variables, local_steps, quorum=2)

    state = bps.elastic.OuterSyncState(model, make_outer, steps=0, together=0)

    @bps.elastic.run
    def train(state):
        if member == 3:
            (folder / "joined").touch()
        while state.together < _STEPS_TOGETHER and not state.outer.others_wait:
            weight.assign_add(np.full(weight.shape, 1.0 + member + state.steps % 3))
            time.sleep(_PAUSE)
            state.steps += 1
            state.together += (folder / "joined").exists()
            if member == 2 and state.steps == _DIES_AFTER:
                recorded.write(folder, state.steps)
                os.kill(os.getpid(), signal.SIGKILL)
            state.outer.step()
        state.outer.finish()

    train(state)
    recorded.write(folder, state.steps)
    (folder / f"weights-{member}.json").write_text(
        json.dumps([weight.numpy().tolist(), state.rows_done])
    )
    bps.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
