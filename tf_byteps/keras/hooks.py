"""The changes that `DistributedOptimizer` makes to Keras while it runs.

Checked with Keras 3.15. They are installed by the first `DistributedOptimizer`; each asks first
whether one is at work and otherwise does exactly what Keras does.

| what | why |
|---|---|
| `LossScaleOptimizer.__init__` | Keras puts one around the optimizer of a mixed_float16 model |
| `TensorFlowTrainer.fit` | who leaves it by an exception tells the others; errors are a sentence |
| `CallbackList.__init__` | only rank 0 shows a progress bar |
| `CallbackList.on_train_batch_begin`, `on_train_batch_end` | timelines have Python's steps |
| `TensorFlowTrainer.evaluate`, `predict` | their batches are no samples of the training |
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import keras

from tf_byteps import runtime
from tf_byteps.exchange import leaving
from tf_byteps.exchange.optimizers import optimizers_of
from tf_byteps.exchange.strategies import is_ours
from tf_byteps.keras import asynchronous, first_step
from tf_byteps.ops import input_waits
from tf_byteps.private.keras_tensorflow import TensorFlowTrainer
from tf_byteps.timeline import python_steps
from tf_byteps.training import failures, progress_bar
from tf_byteps.wrapping import wrap

_lock = threading.Lock()
_installed = False


def install(distributed: type, distribute_loss_scale: Callable[[Any], None]) -> None:
    """Makes the changes, once per process.

    Args:
        distributed: the class that every optimizer of ours has among its own.
        distribute_loss_scale: makes one of ours of a `LossScaleOptimizer` around one of ours.
    """

    def loss_scale_init(
        original: Callable[..., Any],
        self: keras.optimizers.LossScaleOptimizer,
        inner_optimizer: keras.optimizers.Optimizer,
        *args: object,
        **kwargs: object,
    ) -> None:
        original(self, inner_optimizer, *args, **kwargs)
        if isinstance(inner_optimizer, distributed):
            distribute_loss_scale(self)

    def fit(
        original: Callable[..., Any], self: keras.Model, *args: object, **kwargs: object
    ) -> Any:
        return _fit(_optimizers_of(self, distributed), original, self, *args, **kwargs)

    global _installed
    with _lock:
        if not _installed:
            wrap(keras.optimizers.LossScaleOptimizer, "__init__", loss_scale_init)
            wrap(TensorFlowTrainer, "fit", fit)
            input_waits.leave_out(TensorFlowTrainer, "evaluate", "predict")
            wrap(*progress_bar.change(lambda model: _optimizers_of(model, distributed)))
            python_steps.install()
        _installed = True


def _fit(
    distributed: Any,
    original: Callable[..., Any],
    self: keras.Model,
    *args: object,
    **kwargs: object,
) -> Any:
    if not distributed or is_ours(self.distribute_strategy):
        return original(self, *args, **kwargs)
    if runtime.is_initialized() and runtime.size() > 1:
        _meet(distributed)
        if any(map(asynchronous.is_of_another_job, distributed)):
            self.train_function = None  # is traced anew
    with leaving.telling_the_others(), failures.shortened_errors():
        return original(self, *args, **kwargs)


def _meet(optimizers: Sequence[Any]) -> None:
    """Begins a training together, as if none had failed before. A collective."""
    built = [len(optimizer._trainable_variables) for optimizer in optimizers]
    everyone, after_failure = leaving.meet(built)
    if after_failure and all(other == built for other in everyone):
        for optimizer in optimizers:
            first_step.check_again(optimizer)


def _optimizers_of(model: keras.Model, distributed: type) -> list[Any]:
    """A model's own, and what a `train_step` of the user's finds among its attributes."""
    return [each for each in optimizers_of(model) if isinstance(each, distributed)]
