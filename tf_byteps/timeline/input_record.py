"""Who wants a training's waits for its batches noted, and who notes them.

Recorders want them. What notes them is TensorFlow's side (`tf_byteps.ops.input_waits`), which this
package does not know; a process without it has no batches to wait for.
"""

import threading
from collections.abc import Callable

_lock = threading.Lock()
_recorders = 0
_begin: Callable[[], None] | None = None


def begin() -> None:
    """From now on waits are recorded, also in functions that are traced from now on."""
    global _recorders
    with _lock:
        _recorders += 1
        if _begin is not None:
            _begin()


def end() -> None:
    """As many times as `begin`."""
    global _recorders
    with _lock:
        _recorders -= 1


def is_recorded() -> bool:
    """Whether anybody wants them now."""
    return _recorders > 0


def note_by(begin_to_note: Callable[[], None]) -> None:
    """Says who notes them.

    Args:
        begin_to_note: is called whenever a recorder begins, and at once if one has.
    """
    global _begin
    with _lock:
        _begin = begin_to_note
        if _recorders:
            begin_to_note()
