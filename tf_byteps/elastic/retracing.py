"""Functions that were traced for other workers are traced again (protocol rule 16)."""

from collections.abc import Hashable

from tf_byteps import runtime
from tf_byteps.training import traces

_epochs = 0


def next_epoch() -> None:
    """Makes every `tf.function` of the process trace again when it is next called.

    A trace may hold what was true of the workers before, such as their number.
    """
    global _epochs
    _epochs += 1
    traces.depend_on(_epoch)


def keep_traces() -> None:
    """From now on what `traces.depending_on` says of a function decides when it is traced again."""
    traces.depend_on(_epoch)


def _epoch() -> Hashable:
    dependence = traces.dependence()
    if dependence is traces.Dependence.EPOCH:
        return _epochs or None
    if dependence is traces.Dependence.NOTHING or not runtime.is_initialized():
        return None
    return (
        runtime.size(),
        runtime.rank(),
        runtime.local_size(),
        runtime.local_rank(),
        runtime.cross_size(),
        runtime.cross_rank(),
    )
