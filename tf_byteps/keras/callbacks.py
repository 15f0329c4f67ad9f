"""Callbacks for `keras.Model.fit`: with `DistributedOptimizer`, but for `BackupResiduals`,
`LeaveOnSignal`, `OuterSyncCallback`, `Telemetry` and `TrainingCheckpoint`."""

from __future__ import annotations

# Keras's types say little of a callback's model and parameters.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOperatorIssue=false
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import keras

from tf_byteps import runtime
from tf_byteps.exchange.objects import allgather_object
from tf_byteps.exchange.optimizers import optimizers_of
from tf_byteps.exchange.strategies import strategy_of
from tf_byteps.keras.checkpoint import TrainingCheckpoint
from tf_byteps.keras.distributed import innermost
from tf_byteps.keras.framework import current
from tf_byteps.keras.leaving import LeaveOnSignal
from tf_byteps.keras.residuals import BackupResiduals
from tf_byteps.keras.stand_ins import on_tensorflow
from tf_byteps.keras.telemetry import Telemetry
from tf_byteps.types import Variable

if TYPE_CHECKING:
    from tf_byteps.exchange.gradient_arguments import GradientArguments
    from tf_byteps.keras.outer_sync import OuterSyncCallback
else:
    OuterSyncCallback = on_tensorflow("callbacks.OuterSyncCallback", "tf_byteps.keras.outer_sync")

__all__ = [
    "BackupResiduals",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "LeaveOnSignal",
    "MetricAverageCallback",
    "OuterSyncCallback",
    "Telemetry",
    "TrainingCheckpoint",
]


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Gives all workers the root's model and optimizer variables before the first step.

    Put it behind callbacks that restore a checkpoint when training begins, and before those that
    save where an epoch ends: there it sets what optimizers accumulate over steps to the workers'
    average. A model that is not built yet is built from the first batch's shapes, then broadcast,
    then trained.

    Args:
        root_rank: the rank of the worker whose values count.
        device: accepted for compatibility and not used.
        local_variables: a list of variables that keep each worker's own values.

    Raises:
        ValueError: when training begins, on all workers, if their variables differ; it names the
            difference.

    Example:

    >>> model.fit(x, y, callbacks=[BroadcastGlobalVariablesCallback(0)])
    """

    def __init__(
        self, root_rank: int = 0, device: str = "", local_variables: Iterable[Any] | None = None
    ) -> None:
        super().__init__()
        del device
        self.root_rank = root_rank
        self._local = {_key(variable) for variable in local_variables or []}

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Broadcasts, or prepares to if the model has no variables yet."""
        if runtime.size() == 1:
            return
        if not current().before_first_step(self.model, self._broadcast):
            self._broadcast()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Averages accumulated gradients, if steps are left for which no update was made."""
        for optimizer in optimizers_of(self.model):
            reduction = getattr(optimizer, "byteps_reduction", None)
            if reduction is not None and strategy_of(self.model) is None:
                current().average_accumulated(
                    optimizer, lambda v, r=reduction: self._is_local(v, r)
                )

    def _is_local(self, variable: Variable, reduction: GradientArguments) -> bool:
        return _key(variable) in self._local or reduction.is_local(variable)

    def _broadcast(self) -> None:
        model = self.model
        optimizer = getattr(model, "optimizer", None)
        is_usual = type(model).train_step is keras.Model.train_step
        if optimizer is not None and not optimizer.built and is_usual:
            optimizer.build(model.trainable_variables)
        variables = list(model.variables)
        for optimizer in optimizers_of(model):
            variables += optimizer.variables
        unique = {_key(variable): variable for variable in variables}
        shared = [variable for key, variable in unique.items() if key not in self._local]
        current().broadcast_variables(shared, self.root_rank)


class MetricAverageCallback(keras.callbacks.Callback):
    """Replaces the logs of an epoch by their averages over all workers.

    Put it before callbacks that read logs (`ReduceLROnPlateau`, `EarlyStopping`, `TensorBoard`), so
    that all workers decide alike. Workers count equally, whatever the number of their samples.

    Args:
        device: accepted for compatibility and not used.

    Raises:
        ValueError: at the end of an epoch, on all workers, if the workers' logs have other names.

    Example:

    >>> model.fit(x, y, callbacks=[MetricAverageCallback(), ReduceLROnPlateau("val_loss")])
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        del device

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Averages `logs` in place."""
        if not logs or runtime.size() == 1:
            return
        own = {name: float(value) for name, value in logs.items()}
        workers = allgather_object(own, name="metrics of an epoch")
        for rank, other in enumerate(workers):
            if set(other) != set(workers[0]):
                raise ValueError(
                    f"the logs of worker {rank} are {sorted(other)}, but those of worker 0 are "
                    f"{sorted(workers[0])}: all workers must compute the same metrics"
                )
        for name in own:
            logs[name] = sum(worker[name] for worker in workers) / len(workers)


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """Sets the learning rate to `initial_lr * multiplier(epoch)`.

    Momentum correction follows Goyal et al., "Accurate, Large Minibatch SGD" (2017), section 2.2:
    when the rate changes, the velocity is scaled by new / old.

    Args:
        multiplier: a number, or a function of the epoch. The epoch is a whole number if
            `staircase`, else it has a fraction for the batches done.
        start_epoch: the first epoch in which the rate is set.
        end_epoch: the first epoch in which it is not set any more. Default: never.
        staircase: whether the rate changes only at the beginning of an epoch.
        momentum_correction: whether to scale the velocity of optimizers with momentum.
        steps_per_epoch: number of batches in an epoch. Default: what Keras says.
        initial_lr: the rate that is multiplied. Default: the optimizer's when training begins.

    Raises:
        ValueError: when training begins, if the optimizer has a schedule of its own, or if the
            batches of an epoch are not known and `staircase` is false.

    Example:

    >>> LearningRateScheduleCallback(lambda epoch: 0.1 ** (epoch // 30), initial_lr=0.1)
    """

    def __init__(
        self,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        initial_lr: float | None = None,
    ) -> None:
        super().__init__()
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier
        # A number has no course to follow within an epoch.
        self.staircase = staircase or not callable(multiplier)
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.initial_lr = initial_lr
        self.current_epoch = 0

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Reads the optimizer's rate and checks that it can be set."""
        optimizer = innermost(self.model.optimizer)
        if not isinstance(optimizer._learning_rate, keras.Variable):
            raise ValueError(
                "the optimizer has a learning rate schedule of its own: give it a number, or leave "
                f"out {type(self).__name__}"
            )
        if self.initial_lr is None:
            self.initial_lr = float(optimizer.learning_rate)
        self.steps_per_epoch = self.steps_per_epoch or self.params.get("steps")
        if not self.staircase and not self.steps_per_epoch:
            raise ValueError("the number of batches is not known: pass steps_per_epoch")

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Notes the epoch."""
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Sets the rate for this batch."""
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if self.staircase and batch == 0:
            self._set_rate(epoch)
        elif not self.staircase:
            self._set_rate(epoch + batch / self.steps_per_epoch)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the rate to the logs, as `"lr"`."""
        if logs is not None:
            logs["lr"] = float(innermost(self.model.optimizer).learning_rate)

    def _set_rate(self, epoch: float) -> None:
        _read_variables(self.model)
        optimizer = innermost(self.model.optimizer)
        old = float(optimizer.learning_rate)
        new = self.initial_lr * self.multiplier(epoch)
        optimizer.learning_rate = new
        if self.momentum_correction and old > 0 and new != old:
            for velocity in _velocities(optimizer):
                velocity.assign(velocity * (new / old))


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate gradually, from `initial_lr / size` to `initial_lr`.

    Goyal et al. (2017), section 2.2: large batches need a warm-up. In epoch e, which has a fraction
    for the batches done, the rate is `initial_lr / size * (e * (size - 1) / warmup_epochs + 1)`.

    Args:
        warmup_epochs: number of epochs until the rate is reached.
        momentum_correction: see `LearningRateScheduleCallback`.
        steps_per_epoch: see `LearningRateScheduleCallback`.
        verbose: 1: rank 0 prints when the rate is reached.
        initial_lr: the rate to reach. Default: the optimizer's when training begins.

    Raises:
        See `LearningRateScheduleCallback`.

    Example:

    >>> LearningRateWarmupCallback(warmup_epochs=5, initial_lr=0.1 * tf_byteps.size())
    """

    def __init__(
        self,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
        initial_lr: float | None = None,
    ) -> None:
        def multiplier(epoch: float) -> float:
            # The rate is reached in the last batch of the last warm-up epoch.
            epoch += 1.0 / self.steps_per_epoch
            size = runtime.size()
            return 1.0 / size * (epoch * (size - 1) / warmup_epochs + 1)

        super().__init__(
            multiplier,
            start_epoch=0,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
            initial_lr=initial_lr,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the rate to the logs; says when the warm-up is over."""
        super().on_epoch_end(epoch, logs)
        if self.verbose and self.end_epoch is not None and epoch == self.end_epoch - 1:
            if runtime.rank() == 0:
                rate = float(innermost(self.model.optimizer).learning_rate)
                print(f"\nEpoch {epoch + 1}: the warm-up ends with learning rate {rate:g}.")


def _key(variable: Variable) -> int:
    """Equal for a `keras.Variable` and its `tf.Variable`. JAX's arrays are values, and change."""
    value = getattr(variable, "_value", None)
    return id(value if hasattr(value, "assign") else variable)


def _read_variables(model: keras.Model) -> None:
    """On JAX a training step has the values of the variables, until they are asked for."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()


def _velocities(optimizer: keras.optimizers.Optimizer) -> list[Any]:
    """What momentum has accumulated; it contains the learning rate (SGD, RMSprop)."""
    if not optimizer.built or not getattr(optimizer, "momentum", 0):
        return []
    return getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", [])
