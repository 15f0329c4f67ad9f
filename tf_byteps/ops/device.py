"""Which device a worker computes on."""

import tensorflow as tf

from tf_byteps import runtime


def own_device() -> str:
    """The device of this worker: its GPU, or the CPU.

    Returns:
        A string such as `"/device:GPU:0"`. Where a process sees several GPUs it is that of its
        local rank; before `tf_byteps.init()` the first one.
    """
    gpus = tf.config.list_logical_devices("GPU")
    if not gpus:
        return "/device:CPU:0"
    local_rank = runtime.local_rank() if runtime.is_initialized() else 0
    return gpus[local_rank % len(gpus)].name
