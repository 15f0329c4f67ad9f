"""The changes that `DistributedOptimizer` makes to Keras while it runs.

Checked with Keras 3.15. They are installed by the first `DistributedOptimizer`; each asks first
whether one is at work and otherwise does exactly what Keras does.

| what | why |
|---|---|
| `LossScaleOptimizer.__init__` | Keras puts one around the optimizer of a mixed_float16 model |
| `fit` of the trainer | who leaves it by an exception tells the others; errors are a sentence |
| `CallbackList.__init__` | only rank 0 shows a progress bar |
| `CallbackList.on_train_batch_begin`, `on_train_batch_end` | timelines have Python's steps |
| `evaluate` and `predict` of `TensorFlowTrainer` | their batches are no samples of the training |
| `JAXTrainer.train_on_batch` | weights are compared before the first step |
| `JAXTrainer.make_train_function` | exchanges start while backpropagation goes on |
| `JAXTrainer._symbolic_build`, both methods above on JAX | see `strategy.jax.empty_epochs` |
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import keras

from tf_byteps import runtime
from tf_byteps.exchange import leaving
from tf_byteps.keras.distributed import DistributedBase, distribute_loss_scale, distributed_of
from tf_byteps.keras.interface import Framework
from tf_byteps.timeline import python_steps
from tf_byteps.training import progress_bar
from tf_byteps.wrapping import wrap

_lock = threading.Lock()
_installed = False


def install(framework: Framework) -> None:
    """Makes the changes, once per process.

    Args:
        framework: that Keras runs on.
    """

    def loss_scale_init(
        original: Callable[..., Any],
        self: keras.optimizers.LossScaleOptimizer,
        inner_optimizer: keras.optimizers.Optimizer,
        *args: object,
        **kwargs: object,
    ) -> None:
        original(self, inner_optimizer, *args, **kwargs)
        if isinstance(inner_optimizer, DistributedBase):
            distribute_loss_scale(self, framework.classes)

    def fit(
        original: Callable[..., Any], self: keras.Model, *args: object, **kwargs: object
    ) -> Any:
        return _fit(framework, original, self, *args, **kwargs)

    global _installed
    with _lock:
        if not _installed:
            wrap(keras.optimizers.LossScaleOptimizer, "__init__", loss_scale_init)
            wrap(framework.trainer, "fit", fit)
            framework.install()
            wrap(*progress_bar.change(distributed_of))
            python_steps.install()
        _installed = True


def _fit(
    framework: Framework,
    original: Callable[..., Any],
    self: keras.Model,
    *args: object,
    **kwargs: object,
) -> Any:
    distributed = distributed_of(self)
    if not distributed or framework.strategy_of(self) is not None:
        return original(self, *args, **kwargs)
    if runtime.is_initialized() and runtime.size() > 1:
        _meet(framework, distributed)
    with leaving.telling_the_others():
        return framework.fit(distributed, original, self, *args, **kwargs)


def _meet(framework: Framework, optimizers: Sequence[Any]) -> None:
    """Begins a training together, as if none had failed before. A collective."""
    built = [len(optimizer._trainable_variables) for optimizer in optimizers]
    everyone, after_failure = leaving.meet(built)
    if after_failure and all(other == built for other in everyone):
        for optimizer in optimizers:
            framework.check_again(optimizer)
