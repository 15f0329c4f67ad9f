"""Has the engine record a timeline, and writes it while the worker runs."""

import dataclasses
import json
import logging
import os
import sys
from collections.abc import Iterator

from tf_byteps import _engine, step_counters
from tf_byteps.files import path_for, write_whole
from tf_byteps.timeline import python_steps
from tf_byteps.timeline.files import END, Session, growing
from tf_byteps.timeline.parts import (
    InputWait,
    OuterRound,
    PythonStep,
    read,
    read_inputs,
    read_outer_rounds,
    read_python_steps,
)
from tf_byteps.timeline.trace import round_event, step_event, trace, wait_event

# Some 50 MB of memory, and 150 MB on disk; what comes later is only counted.
MAX_PARTS = 200_000

_logger = logging.getLogger("tf_byteps")


class Recorder:
    """Has the engine record, from now to `stop`, what this worker exchanges.

    Args:
        path: where to write, see `tf_byteps.start_timeline`.
        rank: this worker's.
        session: of this process in its job.
    """

    def __init__(self, path: str | os.PathLike[str], rank: int, session: Session) -> None:
        self._rank, self._session = rank, session
        self._dropped = 0
        self._credit = _credit()
        _engine.timeline_start(MAX_PARTS)
        python_steps.begin()
        step_counters.take_rounds()  # those before
        said = {"worker": rank, "credit_bytes": self._credit, "threads": _threads()}
        path = path_for(os.fspath(path), "worker", rank)
        self._file = growing(path, session, (rank, f"worker {rank}"), self._lines, **said)

    @property
    def path(self) -> str:
        """Where it is written."""
        return self._file.path

    def stop(self) -> str:
        """Writes the file and returns its path.

        Raises:
            OSError: it cannot be written.
        """
        _engine.timeline_stop()
        python_steps.end()
        self._file.end(END)
        parts, dropped = read(self.path), self._dropped
        spans = (read_inputs(self.path), read_python_steps(self.path), read_outer_rounds(self.path))
        if dropped:
            _logger.warning(
                "the timeline %s ends early: it has %d parts of tensors, and %d exchanges came "
                "after them",
                self.path,
                len(parts),
                dropped,
            )
        about = {**dataclasses.asdict(self._session), "worker": self._rank}
        about |= {"credit_bytes": self._credit, "threads": _threads()}
        about |= {"dropped_exchanges": dropped}
        write_whole(self.path, trace(parts, *spans, **about))
        return self.path

    def _lines(self) -> Iterator[str]:
        self._credit = _credit() or self._credit  # 0: the engine has stopped
        lines, dropped, waits = _engine.timeline_take(self._rank, self._session.epoch)
        self._dropped += dropped
        if lines:
            yield lines
        for begin, end in waits:
            wait = InputWait(self._rank, begin, end, self._session.epoch)
            yield "," + json.dumps(wait_event(wait))
        for begin, end, batch in python_steps.take():
            step = PythonStep(self._rank, begin, end, batch, self._session.epoch)
            yield "," + json.dumps(step_event(step))
        for begin, end, fragment in step_counters.take_rounds():
            outer = OuterRound(self._rank, begin, end, fragment, self._session.epoch)
            yield "," + json.dumps(round_event(outer))


def _credit() -> int:
    return _engine.worker_counters().get("credit_bytes", 0)


def _threads() -> int:
    """With how many threads TensorFlow computes an operation; by default, one a processor."""
    asked = 0
    if "tensorflow" in sys.modules:
        import tensorflow as tf

        asked = tf.config.threading.get_intra_op_parallelism_threads()
        by_variable = os.environ.get("TF_NUM_INTRAOP_THREADS", "")
        asked = asked or (int(by_variable) if by_variable.isdecimal() else 0)
    return asked or len(os.sched_getaffinity(0))
