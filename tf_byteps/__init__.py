"""BytePS for TensorFlow 2 and Keras 3: data-parallel training through summation servers.

`import tf_byteps` does not import TensorFlow; a name that needs it does, when it is first used.
"""

import importlib

__version__ = "0.1.0"

_RUNTIME = (
    "init",
    "shutdown",
    "is_initialized",
    "rank",
    "size",
    "local_rank",
    "local_size",
    "server_counters",
)
_OPS = ("push_pull", "broadcast", "gather", "ReduceOp", "Sum", "Average", "Min", "Max")

# Where each public name is defined.
_HOME = {
    **dict.fromkeys(_RUNTIME, "tf_byteps.runtime"),
    **dict.fromkeys(_OPS, "tf_byteps.ops"),
    "Config": "tf_byteps.config",
    "BytePSError": "tf_byteps.errors",
    "BytePSStrategy": "tf_byteps.strategy",
}
_MODULES = ("config", "errors", "keras", "ops", "runtime", "strategy")
_WITH_TENSORFLOW = ("tf_byteps.keras", "tf_byteps.ops", "tf_byteps.strategy")

__all__ = ["__version__", *_HOME]


def __getattr__(name):
    home = _HOME.get(name) or (f"tf_byteps.{name}" if name in _MODULES else None)
    if home is None:
        raise AttributeError(f"module 'tf_byteps' has no attribute {name!r}")
    if home in _WITH_TENSORFLOW:
        _check_tensorflow()
    module = importlib.import_module(home)
    return module if name in _MODULES else getattr(module, name)


def _check_tensorflow():
    import tensorflow

    from tf_byteps import _build_check

    _build_check.check_tensorflow(tensorflow.__version__)


def __dir__():
    return sorted({*globals(), *_HOME, *_MODULES})
