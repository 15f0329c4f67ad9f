"""Refuses a TensorFlow other than the one that the libraries were built for, and what is for
TensorFlow where Keras runs on something else."""

# What belongs to Keras's objects, which then are not TensorFlow's -> what there is instead.
_INSTEAD = {
    "OuterSync": "BytePSStrategy or DistributedOptimizer, which exchange gradients in each step",
    "local_steps": "BytePSStrategy or DistributedOptimizer, which exchange gradients in each step",
    "elastic.OuterSyncState": "tf_byteps.elastic.KerasState, with commits",
    "elastic.TensorFlowState": "tf_byteps.elastic.KerasState, or JaxState for JAX's arrays",
}


def check_tensorflow(installed: str) -> None:
    """Compares the TensorFlow in this process with the one that `_ops.so` was built for.

    A custom operation uses TensorFlow's C++ classes, whose layout may change with any release, so
    that even loading it into another one is not safe.

    Args:
        installed: the version in this process, `tf.__version__`.

    Raises:
        ImportError: it is another one, or tf_byteps has not been built for it.
    """
    try:
        from tf_byteps import _build_info
    except ImportError as error:
        raise ImportError(
            "tf_byteps has not been built for TensorFlow: in its source folder, run "
            "`TF_BYTEPS_TENSORFLOW=1 pip install .` or, to work on it, `make build`"
        ) from error
    if installed != _build_info.TENSORFLOW_VERSION:
        raise ImportError(
            f"tf_byteps was built for TensorFlow {_build_info.TENSORFLOW_VERSION} and cannot be "
            f"used with the installed {installed}: run `pip install .` in its source folder "
            f"again, or install TensorFlow {_build_info.TENSORFLOW_VERSION}"
        )


def check_installed_tensorflow() -> None:
    """`check_tensorflow` for the TensorFlow of this process, which is imported."""
    import tensorflow

    check_tensorflow(tensorflow.__version__)


def check_backend(name: str) -> None:
    """Refuses what works with Keras on TensorFlow only.

    Args:
        name: of `tf_byteps`.

    Raises:
        ImportError: Keras runs on something else.
    """
    if name not in _INSTEAD:
        return
    import keras

    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise ImportError(
            f"tf_byteps.{name} is for Keras on TensorFlow, and KERAS_BACKEND is {backend!r}: use "
            f"{_INSTEAD[name]}"
        )
