"""What states of trainings do for those who kill their workers: see `worker_kills`."""

import math
import os
import time

import tf_byteps as bps
from tf_byteps.elastic.states import any_worker

BATCHES = 29  # of an epoch
COMMIT = 5  # batches
SECONDS = 0.03  # at least, for each batch, so that kills hit batches in flight


class Noting:
    """Put before a class of states: it says how far it has come, and waits where it is told to.

    Set `folder` before the first commit.
    """

    folder = ""

    def commit(self):
        self.note("commit")
        super().commit()
        while any_worker("held", self._is_held()):
            time.sleep(0.05)
            self.check_host_updates()

    def _is_held(self):
        """Whether training is to wait, for workers to be killed."""
        limit, path = math.inf, os.path.join(self.folder, "limit.txt")
        if os.path.exists(path):
            with open(path) as file:
                limit = float(file.read())
        return done(self) >= limit

    def note(self, what):
        member = os.environ.get("BYTEPS_MEMBER")
        with open(os.path.join(self.folder, "progress.txt"), "a") as file:
            file.write(f"{what} {done(self)} {member} {bps.size()}\n")


def done(state):
    """Batches that are done."""
    return state.epoch * BATCHES + state.batch
