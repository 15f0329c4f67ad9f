"""The changes that `DistributedOptimizer` makes to Keras while it runs.

Checked with Keras 3.15. They are installed by the first `DistributedOptimizer`; each asks first
whether one is at work and otherwise does exactly what Keras does.

| what | why |
|---|---|
| `LossScaleOptimizer.__init__` | Keras puts one around the optimizer of a mixed_float16 model |
"""

import threading

import keras

from tf_byteps.wrapping import wrap

_lock = threading.Lock()
_installed = False


def install():
    """Makes the changes, once per process."""
    global _installed
    with _lock:
        if not _installed:
            wrap(keras.optimizers.LossScaleOptimizer, "__init__", _loss_scale_init)
        _installed = True


def _loss_scale_init(original, self, inner_optimizer, *args, **kwargs):
    from tf_byteps.keras import optimizer

    original(self, inner_optimizer, *args, **kwargs)
    if isinstance(inner_optimizer, optimizer.Distributed):
        optimizer.distribute_loss_scale(self)
