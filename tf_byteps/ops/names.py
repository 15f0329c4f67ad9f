"""Names of operations, within a `tf.function` and in eager code."""

import threading
import weakref

import tensorflow as tf

from tf_byteps.exchange import names
from tf_byteps.exchange.names import in_scope as in_scope
from tf_byteps.private.tensorflow import tf_stack

_counts_lock = threading.Lock()
# Graph -> {name without index: uses so far}. A retrace is a new graph and starts again at 0.
_counts = weakref.WeakKeyDictionary()


def call_site() -> str:
    """`exchange.names.call_site`, which in converted functions too is a line of the program's."""
    return names.call_site(reversed(tf_stack.extract_stack()))


def unnamed(kind: str, workers: str = "") -> str:
    """The name of an exchange that the user gave none.

    Within a `tf.function`, the uses at one place are numbered in trace order. In eager code they
    share a name, because the next begins only when the last has ended. What is exchanged is not
    part of the name: workers that disagree about shape or dtype must meet to find it out.

    Args:
        kind: what is exchanged for what purpose, for example `"broadcast"`.
        workers: `process_sets.scope_of` those who exchange it. Each set numbers for itself: its
            workers may not be in the others.

    Returns:
        For example `"push_pull@train.py:42:train_step"`.
    """
    return numbered(f"{kind}@{call_site()}", workers)


def numbered(name: str, workers: str = "") -> str:
    """`name`, with `#1`, `#2`, ... for its further uses within the graph under construction.

    Args:
        name: of an exchange, below `workers`.
        workers: see `unnamed`.
    """
    if tf.executing_eagerly():
        return name
    with _counts_lock:
        counts = _counts.setdefault(tf.compat.v1.get_default_graph(), {})
        counted = in_scope(workers, name)
        index = counts[counted] = counts.get(counted, -1) + 1
    return f"{name}#{index}" if index else name
