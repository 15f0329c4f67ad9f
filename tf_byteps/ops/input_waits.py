"""How long a training waits for its batches, and how many samples they have.

All batches of `tf.data` come out of an iterator of TensorFlow's: in `Model.fit`, in loops of one's
own, in functions and outside. Within a job that iterator notes when it was asked, and when it had
the batch. A function that was traced before the job began does not.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tf_byteps import _engine, runtime
from tf_byteps.ops import library
from tf_byteps.private.tensorflow import OwnedIterator, autograph_api as api, framework_ops as ops
from tf_byteps.wrapping import wrap

_CPU = "/device:CPU:0"

_local = threading.local()


def install() -> None:
    """Makes iterators note their batches. Once per process."""
    for name in ("_next_internal", "get_next_as_optional"):
        wrap(OwnedIterator, name, _next)
        # As TensorFlow's own: AutoGraph calls it as it is.
        api.autograph_artifact(getattr(OwnedIterator, name))


@functools.cache
def leave_out(owner: type, *names: str) -> None:
    """Makes methods of a class read, and trace, no samples of a training. Once per process.

    Args:
        owner: the class.
        *names: of its methods.
    """
    for name in names:
        wrap(owner, name, _without_samples)


def _without_samples(original: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    with without_samples():
        return original(*args, **kwargs)


@contextlib.contextmanager
def without_samples() -> Iterator[None]:
    """Meanwhile what this thread reads, and traces, is no sample of a training."""
    outer = getattr(_local, "evaluates", False)
    _local.evaluates = True
    try:
        yield
    finally:
        _local.evaluates = outer


def _next(original: Callable[..., Any], self: OwnedIterator) -> Any:
    if not runtime.is_initialized():
        return original(self)
    if not tf.executing_eagerly():
        return _next_in_function(original, self)
    began, samples = _engine.wall_nanos(), 0
    try:
        batch = original(self)
        samples = _samples(batch)
    finally:
        _engine.note_batch(began, _engine.wall_nanos(), int(samples))
    return batch


def _next_in_function(original: Callable[..., Any], self: OwnedIterator) -> Any:
    # Where the iterator is, which keeps the order of its uses: what comes from a GPU would be sent
    # to the CPU behind all that the GPU has to do.
    iterator = self._iterator_resource
    none = _on_cpu(0)
    began = _note(iterator, none, none)
    batch = original(self)
    _note(iterator, began, _on_cpu(_samples(batch)))
    return batch


def _note(iterator: tf.Tensor, began: tf.Tensor, samples: tf.Tensor) -> tf.Tensor:
    with ops.colocate_with(iterator):
        return library.kernels().byte_ps_note_batch(iterator=iterator, began=began, samples=samples)


def _on_cpu(number: tf.Tensor | int) -> tf.Tensor:
    with tf.device(_CPU):
        return tf.convert_to_tensor(number, tf.int64)


def _samples(batch: object) -> tf.Tensor | int:
    """The length of the first tensor that has one; 0: there is none, or nobody trains with it."""
    if getattr(_local, "evaluates", False):
        return 0
    if isinstance(batch, tf.experimental.Optional):  # for several steps per execution
        some = lambda: _on_cpu(_samples(batch.get_value()))  # noqa: E731
        return tf.cond(batch.has_value(), some, lambda: _on_cpu(0))
    for part in tf.nest.flatten(batch):
        if isinstance(part, tf.Tensor) and part.shape.rank:
            length = part.shape[0]
            if length is not None:
                return length
            # Lengths are in the memory of the CPU even if the batch is not.
            with ops.colocate_with(part):
                shape = tf.shape(part, out_type=tf.int64)
            with tf.device(_CPU):
                return shape[0]
    return 0
