"""The changes that `DistributedOptimizer` makes to Keras while it runs.

Checked with Keras 3.15. They are installed by the first `DistributedOptimizer`; each asks first
whether one is at work and otherwise does exactly what Keras does.

| what | why |
|---|---|
| `LossScaleOptimizer.__init__` | Keras puts one around the optimizer of a mixed_float16 model |
| `TensorFlowTrainer.fit` | who leaves it by an exception tells the others; errors in a sentence |
| `CallbackList.on_train_batch_begin`, `on_train_batch_end` | timelines have Python's steps |
"""

import threading
from collections.abc import Sequence
from typing import Any

import keras
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

from tf_byteps import runtime
from tf_byteps.gradients.replica import is_ours
from tf_byteps.keras import first_step
from tf_byteps.timeline import python_steps
from tf_byteps.training import failures, leaving
from tf_byteps.wrapping import wrap

_lock = threading.Lock()
_installed = False


def install() -> None:
    """Makes the changes, once per process."""
    global _installed
    with _lock:
        if not _installed:
            wrap(keras.optimizers.LossScaleOptimizer, "__init__", _loss_scale_init)
            wrap(TensorFlowTrainer, "fit", _fit)
            python_steps.install()
        _installed = True


def _loss_scale_init(original, self, inner_optimizer, *args, **kwargs) -> None:
    from tf_byteps.keras import optimizer

    original(self, inner_optimizer, *args, **kwargs)
    if isinstance(inner_optimizer, optimizer.Distributed):
        optimizer.distribute_loss_scale(self)


def _fit(original, self, *args, **kwargs):
    distributed = _distributed_optimizers(self)
    if not distributed or is_ours(self.distribute_strategy):
        return original(self, *args, **kwargs)
    if runtime.is_initialized() and runtime.size() > 1:
        _meet(distributed)
    with leaving.telling_the_others(), failures.in_a_sentence():
        return original(self, *args, **kwargs)


def _meet(optimizers: Sequence[Any]) -> None:
    """Begins a training together, as if none had failed before. A collective."""
    built = [len(optimizer._trainable_variables) for optimizer in optimizers]
    everyone, after_failure = leaving.meet(built)
    if after_failure and all(other == built for other in everyone):
        for optimizer in optimizers:
            first_step.check_again(optimizer)


def _distributed_optimizers(model: Any) -> list[Any]:
    """A model's own, and what a `train_step` of the user's finds among its attributes."""
    from tf_byteps.keras import optimizer

    candidates = [getattr(model, "optimizer", None), *vars(model).values()]
    found = [each for each in candidates if isinstance(each, optimizer.Distributed)]
    return list({id(each): each for each in found}.values())
