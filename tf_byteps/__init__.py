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
    "arrival_lags",
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
_TRAINING = {
    "collectives": ("allreduce", "broadcast_", "grouped_allgather", "grouped_allreduce"),
    "objects": ("allgather_object", "broadcast_object"),
    "runtime_ops": ("local_rank_op", "local_size_op", "rank_op", "size_op"),
    "speed": ("get_pushpull_speed",),
    "suspension": ("resume", "suspend"),
    "tape": ("DistributedGradientTape",),
    "variables": ("broadcast_global_variables", "broadcast_variables"),
}
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
    **{name: f"tf_byteps.training.{module}" for module in _TRAINING for name in _TRAINING[module]},
    **dict.fromkeys(_UNSUPPORTED, "tf_byteps.training.unsupported"),
    "DistributedOptimizer": "tf_byteps.keras",
    "Config": "tf_byteps.config",
    "BytePSError": "tf_byteps.errors",
    "BytePSStrategy": "tf_byteps.strategy",
}
_MODULES = (
    "config",
    "elastic",
    "errors",
    "keras",
    "ops",
    "runtime",
    "strategy",
    "timeline",
    "training",
)
_WITH_TENSORFLOW = ("elastic", "keras", "ops", "strategy", "training")

__all__ = ["__version__", *(name for name in _HOME if name not in _UNSUPPORTED)]


def __getattr__(name):
    home = _HOME.get(name) or (f"tf_byteps.{name}" if name in _MODULES else None)
    if home is None:
        raise AttributeError(f"module 'tf_byteps' has no attribute {name!r}")
    if home.split(".")[1] in _WITH_TENSORFLOW:
        _check_tensorflow()
    module = importlib.import_module(home)
    return module if name in _MODULES else getattr(module, name)


def _check_tensorflow():
    import tensorflow

    from tf_byteps import _build_check

    _build_check.check_tensorflow(tensorflow.__version__)


def __dir__():
    return sorted({*globals(), *_HOME, *_MODULES})
