"""How long a training waits for its batches, as a timeline has it.

All batches of `tf.data` come out of an iterator of TensorFlow's: in `Model.fit`, in loops of one's
own, in functions and outside. While a timeline is recorded, that iterator notes when it was asked
and when it had the batch. A function that was traced before does not.
"""

import functools
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.impl import api
from tensorflow.python.data.ops.iterator_ops import OwnedIterator
from tensorflow.python.framework import ops

from tf_byteps import _engine
from tf_byteps.ops import library
from tf_byteps.timeline import input_record
from tf_byteps.wrapping import wrap


@functools.cache
def _install() -> None:
    for name in ("_next_internal", "get_next_as_optional"):
        wrap(OwnedIterator, name, _next)
        # As TensorFlow's own: AutoGraph calls it as it is.
        api.autograph_artifact(getattr(OwnedIterator, name))


def _next(original: Any, self: Any) -> Any:
    if not input_record.is_recorded():
        return original(self)
    if not tf.executing_eagerly():
        return _next_in_function(original, self)
    began = _engine.wall_nanos()
    try:
        return original(self)
    finally:
        _engine.timeline_add_input(began, _engine.wall_nanos())


def _next_in_function(original: Any, self: Any) -> Any:
    note, iterator = library.kernels().byte_ps_note_input, self._iterator_resource
    with ops.colocate_with(iterator):
        began = note(iterator=iterator, began=tf.constant(0, tf.int64))
    batch = original(self)
    with ops.colocate_with(iterator):
        note(iterator=iterator, began=began)
    return batch


input_record.note_by(_install)
