"""Names of exchanges: by them the workers know which of their tensors belong together (rule 12).

All workers must find the same name for the same exchange, whatever else each of them does. So a
name is made of what the program says at this place, never of a count over the process or of an
object's address.
"""

import contextlib
import functools
import os
import sys
import threading
import weakref

import keras
import tensorflow as tf
from tensorflow.python.util import tf_stack

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Frames of these files are never the place in the user's program that asks for an exchange.
_INTERNAL = (
    os.path.dirname(os.path.abspath(tf.__file__)) + os.sep,
    os.path.dirname(os.path.abspath(keras.__file__)) + os.sep,
    _PACKAGE + os.sep,
    contextlib.__file__,
    functools.__file__,
    threading.__file__,
    "<",
)

_counts_lock = threading.Lock()
# Graph -> {name without index: uses so far}. A retrace is a new graph and starts again at 0.
_counts = weakref.WeakKeyDictionary()


def call_site() -> str:
    """The place in the user's program, without this machine's folders: `"train.py:42:step"`."""
    for frame in reversed(tf_stack.extract_stack()):
        path = frame.filename
        if path.startswith(_INTERNAL) or "__autograph_generated_file" in path:
            continue
        return f"{_relative(path)}:{frame.lineno}:{frame.name}"
    return "unknown"


def unnamed(kind: str) -> str:
    """The name of an exchange that the user gave none.

    Within a `tf.function`, the uses at one place are numbered in trace order. In eager code they
    share a name, because the next begins only when the last has ended. What is exchanged is not
    part of the name: workers that disagree about shape or dtype must meet to find it out.

    Args:
        kind: what is exchanged for what purpose, for example `"broadcast"`.

    Returns:
        For example `"push_pull@train.py:42:train_step"`.
    """
    return numbered(f"{kind}@{call_site()}")


def in_scope(scope: str, name: str) -> str:
    """`name` below the prefix `scope`, which may be empty or end in a slash already."""
    return f"{scope.rstrip('/')}/{name}" if scope else name


def numbered(name: str) -> str:
    """`name`, with `#1`, `#2`, ... for its further uses within the graph under construction."""
    if tf.executing_eagerly():
        return name
    with _counts_lock:
        counts = _counts.setdefault(tf.compat.v1.get_default_graph(), {})
        index = counts[name] = counts.get(name, -1) + 1
    return f"{name}#{index}" if index else name


def _relative(path: str) -> str:
    """`path` below its import folder: equal on machines that keep the program elsewhere."""
    folders = [os.path.abspath(folder or os.curdir) + os.sep for folder in sys.path]
    containing = [folder for folder in folders if path.startswith(folder)]
    return path[len(max(containing, key=len)) :] if containing else os.path.basename(path)
