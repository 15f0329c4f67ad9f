"""Wrong reductions of gradients, for tests of whether a check notices."""

import contextlib

import tensorflow as tf

import tf_byteps as bps
from tf_byteps.strategy.keras_hooks import gradients as keras_hooks

_true_reduction = keras_hooks.reduce_gradients


def _identity(gradients, variables):
    return list(gradients)


def _one_worker_twice(gradients, variables):
    factor = 2.0 if bps.rank() == 0 else 1.0
    return _true_reduction([factor * gradient for gradient in gradients], variables)


def _two_replies_swapped(gradients, variables):
    """The first two biases'; the longer one's is cut and filled as a mixed-up reply would be."""
    reduced = _true_reduction(gradients, variables)
    short, long = sorted((1, 3), key=lambda index: reduced[index].shape[0])
    length = reduced[short].shape[0]
    swapped = tf.concat([reduced[short], reduced[long][length:]], 0)
    reduced[short], reduced[long] = reduced[long][:length], swapped
    return reduced


_FAULTS = {
    "identity": _identity,
    "one worker twice": _one_worker_twice,
    "two replies swapped": _two_replies_swapped,
}
NAMES = tuple(_FAULTS)


@contextlib.contextmanager
def wrong_reduction(name):
    """Replaces the strategy's reduction by a wrong one; with `None` by none."""
    keras_hooks.reduce_gradients = _FAULTS[name] if name else _true_reduction
    try:
        yield
    finally:
        keras_hooks.reduce_gradients = _true_reduction
