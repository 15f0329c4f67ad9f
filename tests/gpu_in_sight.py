"""What Keras does by default on a machine with a GPU, on any machine."""

import contextlib
from unittest import mock

import tensorflow as tf


class _Gpu:
    device_type = "GPU"


@contextlib.contextmanager
def gpu_in_sight():
    """Within it Keras sees a GPU, and so compiles models with XLA; nothing runs on one."""
    devices = tf.config.list_physical_devices

    def with_a_gpu(*kind):
        return devices(*kind) if kind else [*devices(), _Gpu()]

    with mock.patch.object(tf.config, "list_physical_devices", with_a_gpu):
        yield
