"""`examples/keras_digits.py` with a reduction of gradients that is wrong as DEMO_FAULT says."""

import os
import runpy

import tensorflow as tf

import tf_byteps as bps
from tf_byteps.strategy import keras_hooks

_true_reduction = keras_hooks.reduce_gradients


def _identity(gradients, variables):
    return list(gradients)


def _one_worker_twice(gradients, variables):
    factor = 2.0 if bps.rank() == 0 else 1.0
    return _true_reduction([factor * gradient for gradient in gradients], variables)


def _two_replies_swapped(gradients, variables):
    reduced = _true_reduction(gradients, variables)
    # Both are biases; the longer one's is cut and filled as a mixed-up reply would be.
    short, long = reduced[3], reduced[1]
    reduced[1] = tf.concat([short, long[short.shape[0] :]], 0)
    reduced[3] = long[: short.shape[0]]
    return reduced


keras_hooks.reduce_gradients = {
    "identity": _identity,
    "one worker twice": _one_worker_twice,
    "two replies swapped": _two_replies_swapped,
}[os.environ["DEMO_FAULT"]]
_examples = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")
runpy.run_path(os.path.join(_examples, "keras_digits.py"), run_name="__main__")
