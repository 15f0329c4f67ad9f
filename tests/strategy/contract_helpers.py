"""What the programs about the contract of a strategy share."""

import contextlib

import tensorflow as tf


@contextlib.contextmanager
def raises(kind, text):
    """Fails unless its body raises a `kind` of exception whose message contains `text`."""
    try:
        yield
    except kind as error:
        assert text in str(error), f"{text!r} is not in {error}"
    else:
        raise AssertionError(f"no {kind.__name__}")


def replica():
    return tf.distribute.get_replica_context()


def numpy(structure):
    return tf.nest.map_structure(lambda value: value.numpy(), structure)
