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
    "start_timeline",
    "stop_timeline",
)
_OPS = (
    "push_pull",
    "broadcast",
    "gather",
    "allgather",
    "ReduceOp",
    "Sum",
    "Average",
    "Min",
    "Max",
    "Compression",
)
_TRAINING = (
    "DistributedGradientTape",
    "allgather_object",
    "allreduce",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "get_pushpull_speed",
    "grouped_allgather",
    "grouped_allreduce",
    "local_rank_op",
    "local_size_op",
    "rank_op",
    "resume",
    "size_op",
    "suspend",
)
# Of other libraries: using one says what to use instead.
_UNSUPPORTED = (
    "Adasum",
    "BroadcastGlobalVariablesHook",
    "PartialDistributedGradientTape",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Product",
    "SyncBatchNormalization",
    "add_process_set",
    "alltoall",
    "broadcast_object_fn",
    "elastic",
    "global_process_set",
    "grouped_reducescatter",
    "join",
    "process_set_included_op",
    "reducescatter",
    "remove_process_set",
)

# Where each public name is defined.
_HOME = {
    **dict.fromkeys(_RUNTIME, "tf_byteps.runtime"),
    **dict.fromkeys(_OPS, "tf_byteps.ops"),
    **dict.fromkeys(_TRAINING, "tf_byteps.training"),
    **dict.fromkeys(_UNSUPPORTED, "tf_byteps.training.unsupported"),
    "DistributedOptimizer": "tf_byteps.keras",
    "Config": "tf_byteps.config",
    "BytePSError": "tf_byteps.errors",
    "BytePSStrategy": "tf_byteps.strategy",
}
_MODULES = ("config", "errors", "keras", "ops", "runtime", "strategy", "timeline", "training")
_WITH_TENSORFLOW = (
    "tf_byteps.keras",
    "tf_byteps.ops",
    "tf_byteps.strategy",
    "tf_byteps.training",
    "tf_byteps.training.unsupported",
)

__all__ = ["__version__", *(name for name in _HOME if name not in _UNSUPPORTED)]


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
