"""Errors of a training that has lost somebody, in a sentence."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tf_byteps import _engine, runtime
from tf_byteps.errors import is_on_all_workers, on_all_workers

# What the engine says of an exchange (cc/worker), among what TensorFlow adds around it.
_SENTENCE = re.compile(r'tensor "[^"\n]*"[^\n]*?(?:, round \d+:|: round \d+)[^\n]*?(?= \[Op:|\n|$)')

# Of `tf.data.Dataset.cache`, where a function of the pipeline calls it.
_CACHE_IN_USE = re.compile(r"cache lockfile already exists \('([^']*)'\)")

_NOT_COMPILED = "unsupported operations when trying to compile graph"  # as XLA says it


@contextlib.contextmanager
def shortened_errors() -> Iterator[Any]:
    """Raises an error of the engine again, without the graph that TensorFlow describes around it.

    For what users call with a whole training inside; where an operation was made, and by which of
    Keras's functions it was called, says nothing about a lost process. Who that is, if it was a
    loss, is the error's `byteps_lost`.

    Example:

    >>> with shortened_errors():
    ...     train_function(iterator)
    """
    try:
        yield
    except tf.errors.OpError as error:
        found = _SENTENCE.search(error.message)
        cache = _CACHE_IN_USE.search(error.message)
        if cache is not None and isinstance(error, tf.errors.AlreadyExistsError):
            sentence = (
                "a dataset caches to a file that another process writes, or that a killed run has "
                f"left: {cache.group(1)}. Give each worker a file name of its own in "
                "Dataset.cache, with tf_byteps.rank() in it; delete the lockfile if no process "
                "uses it"
            )
            raise type(error)(error.node_def, error.op, sentence) from None
        if _NOT_COMPILED in error.message:
            hint = "XLA cannot compile this model: pass jit_compile=False to Model.compile"
            message = f"{error.message}\n{hint}"
            raise type(error)(error.node_def, error.op, message) from None
        if found is None and not _engine.worker_failure():
            raise  # not ours
        sentence = found.group() if found else _engine.worker_failure()
        kind = type(error) if found else tf.errors.UnavailableError
        raised = kind(error.node_def, error.op, sentence)
        if is_on_all_workers(error):
            on_all_workers(raised)
        raised.byteps_lost = runtime.lost_process()  # pyright: ignore[reportAttributeAccessIssue]
        raise raised from None
