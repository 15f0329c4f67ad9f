"""Loads the custom operations, once per process."""

import os
import re
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_byteps._build_check import check_tensorflow
from tf_byteps.ops.device import own_device
from tf_byteps.private.tensorflow import (
    AtomicFunction,
    CapturableResource,
    ConcreteFunction,
    eager_context,
    gen_resource_variable_ops,
)
from tf_byteps.wrapping import wrap
from tf_byteps.xla_library import end_failed_programs

check_tensorflow(tf.__version__)

_PATH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "_ops.so")

_lock = threading.Lock()
_library = None
_tokens = {}
_uses = 0


def kernels() -> Any:
    """The module of generated functions, one for each registered operation.

    Raises:
        ImportError: the library is missing or was built for another TensorFlow.
    """
    global _library
    with _lock:
        if _library is None:
            _library = _load()
        return _library


def _load() -> Any:
    if not os.path.exists(_PATH):
        raise ImportError(f"{_PATH} is missing: build the package first (pip install .)")
    try:
        return tf.load_op_library(_PATH)
    except tf.errors.NotFoundError as error:
        raise ImportError(
            f"{_PATH} does not fit the installed TensorFlow {tf.__version__}: reinstall "
            f"tf_byteps so that it is built for it ({error.message})"
        ) from error


class _Token(CapturableResource):
    """A resource that nobody reads. A SavedModel has one, too.

    It is where the exchanges will most likely be. A step would begin with passing on each token of
    another device: 1.7 ms of a step of ResNet-50 on a GPU.
    """

    def __init__(self, name: str) -> None:
        super().__init__(device=own_device())  # pyright: ignore[reportCallIssue]
        self._name = name

    def _create_resource(self) -> Any:
        # TensorFlow keeps what it makes ready for an operation with these attributes: 27 KB for
        # each name, for ever. Its own variables have the anonymous one, too. A graph that is saved
        # must have a name of its own for each token.
        is_eager = tf.executing_eagerly()
        name = eager_context.anonymous_name() if is_eager else f"tf_byteps/{self._name}"
        handle = gen_resource_variable_ops.var_handle_op(
            dtype=tf.float32, shape=[], shared_name=name
        )
        # XLA takes none without a value into a branch.
        gen_resource_variable_ops.assign_variable_op(handle, tf.constant(0.0))
        return handle


def token(name: str) -> tf.Tensor:
    """The resource handle that orders the uses of one exchange name (protocol rule 11).

    TensorFlow runs operations on one resource in program order, through function calls, branches
    and the iterations of a `tf.while_loop`, and lets those on different resources overlap.

    Args:
        name: the name of an exchange.

    Returns:
        A scalar resource tensor, the same one for every use of `name` in this process.
    """
    global _uses
    with _lock:
        _uses += 1
        # A resource keeps the graph in which it is made alive, and with it a model's weights.
        with tf.init_scope():
            if name not in _tokens:
                _tokens[name] = _Token(name)
            return _tokens[name].resource_handle


def uses() -> int:
    """How often `token` was called: more often when a function was traced that exchanges."""
    return _uses


def _function_children(
    original: Callable[..., Any], self: Any, save_type: str = "checkpoint", **kwargs: Any
) -> Any:
    """Lets a SavedModel find the tokens that a function uses.

    It knows the resources that are attributes of the saved object, and refuses functions that use
    others.
    """
    children = original(self, save_type, **kwargs)
    if save_type == "savedmodel":
        for index, (captured, _) in enumerate(self.graph.captures):
            parent = getattr(captured, "_parent_trackable", lambda: None)()
            if isinstance(parent, _Token):
                children[f"byteps_token_{index}"] = parent
    return children


# What TensorFlow adds when it takes an error of ours for one of its own network.
_REPLACED = re.compile(r"\s*Executing non-communication op .* error handling logic\.", re.DOTALL)


def _call_flat(original: Callable[..., Any], self: AtomicFunction, *args: object) -> Any:
    """Ends what a function has begun that XLA has compiled, and that has failed. Raises its
    UNAVAILABLE error as what it was."""
    try:
        return original(self, *args)
    except tf.errors.OutOfRangeError:  # the end of a dataset
        raise
    except tf.errors.OpError as error:
        end_failed_programs()
        message, replaced = _REPLACED.subn("", error.message)
        if not replaced or "originally returned UnavailableError" not in error.message:
            raise
        raise tf.errors.UnavailableError(error.node_def, error.op, message) from None


# Needed to load a SavedModel that contains exchanges, before the first call that does one.
kernels()
wrap(ConcreteFunction, "_trackable_children", _function_children)
wrap(AtomicFunction, "call_flat", _call_flat)
