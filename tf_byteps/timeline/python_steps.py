"""When Keras's training loop called each step, and had it back, while a timeline is recorded.

Between two of them Python is busy with callbacks, and with Keras itself.
"""

from __future__ import annotations

import collections
import threading
from typing import Any

from tf_byteps import _engine
from tf_byteps.wrapping import wrap

# That nobody has taken; a recording is written every two seconds.
_MOST = 200_000

_lock = threading.Lock()
_installed = False
_recorders = 0
_began = 0
_spans: collections.deque[tuple[int, int, int]] = collections.deque(maxlen=_MOST)


def install() -> None:
    """Makes Keras's callbacks note them, once per process."""
    global _installed
    import keras

    with _lock:
        if not _installed:
            wrap(keras.callbacks.CallbackList, "on_train_batch_begin", _on_begin)
            wrap(keras.callbacks.CallbackList, "on_train_batch_end", _on_end)
        _installed = True


def begin() -> None:
    """From now on they are noted."""
    global _recorders
    with _lock:
        _recorders += 1


def end() -> None:
    """As many times as `begin`."""
    global _recorders
    with _lock:
        _recorders -= 1


def take() -> list[tuple[int, int, int]]:
    """What was noted since the last call: begin, end, and the number of the batch in its epoch."""
    return [_spans.popleft() for _ in range(len(_spans))]


def end_step(batch: int) -> None:
    """Notes that a step has come back, unless that was noted.

    Args:
        batch: the number of the step's last batch in its epoch.
    """
    global _began
    if _recorders and _began:
        _spans.append((_began, _engine.wall_nanos(), batch))
    _began = 0


def _on_begin(original: Any, self: Any, batch: int, logs: Any = None) -> None:
    global _began
    original(self, batch, logs)
    _began = _engine.wall_nanos() if _recorders else 0


def _on_end(original: Any, self: Any, batch: int, logs: Any = None) -> None:
    end_step(batch)
    original(self, batch, logs)
