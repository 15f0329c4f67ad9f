"""TensorFlow, as `tf_byteps.keras` needs it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_byteps import ops
from tf_byteps.exchange.compression import AnyCompressor
from tf_byteps.exchange.process_sets import ProcessSet
from tf_byteps.exchange.reduce_op import ReduceOp
from tf_byteps.gradients import accumulators
from tf_byteps.keras import asynchronous, first_step
from tf_byteps.keras.distributed import DistributedBase
from tf_byteps.keras.interface import Framework, Matrix, ScalarWriter, other_framework
from tf_byteps.keras.tensorflow.optimizer import Distributed, DistributedLossScale, fingerprints
from tf_byteps.keras.tensorflow.scalars import Scalars
from tf_byteps.ops import input_waits
from tf_byteps.ops.compression import low_rank
from tf_byteps.private.keras_tensorflow import TensorFlowTrainer
from tf_byteps.strategy.input import position as positions, shuffle
from tf_byteps.training import failures, scattering
from tf_byteps.training.gradient_reduction import GradientReduction
from tf_byteps.training.variables import broadcast_variables
from tf_byteps.types import TensorLike, Variable


class TensorFlow(Framework):
    """TensorFlow's part of `tf_byteps.keras`."""

    classes = (Distributed, DistributedLossScale)
    trainer = TensorFlowTrainer
    reduction = GradientReduction
    otherwise = "in a training loop of your own, DistributedGradientTape works with any optimizer"
    counts_input = True

    def push_pull(
        self,
        value: TensorLike,
        name: str | None,
        average: bool | None,
        prescale_factor: float,
        postscale_factor: float,
        op: ReduceOp | str | None,
        compression: AnyCompressor,
        process_set: ProcessSet | None,
    ) -> np.ndarray:
        result: Any = ops.push_pull(
            value,
            average=average,
            name=name,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            op=op,
            compression=compression,
            process_set=process_set,
        )
        return result.numpy()

    def allgather(
        self, value: TensorLike, name: str | None, process_set: ProcessSet | None
    ) -> np.ndarray:
        return ops.gather(value, name, process_set=process_set).numpy()

    def reducescatter(
        self,
        value: TensorLike,
        name: str | None,
        op: ReduceOp | str,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet | None,
    ) -> np.ndarray:
        return scattering.reducescatter(
            value,
            op=op,
            name=name,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set=process_set,
        ).numpy()

    def broadcast(
        self, value: TensorLike, root_rank: int, name: str | None, process_set: ProcessSet | None
    ) -> np.ndarray:
        return np.asarray(ops.broadcast(value, root_rank, name, process_set=process_set))

    def broadcast_variables(
        self,
        variables: Iterable[Variable],
        root_rank: int,
        scope: str = "",
        process_set: ProcessSet | None = None,
    ) -> None:
        broadcast_variables(variables, root_rank, scope, process_set)

    def before_first_step(self, model: keras.Model, function: Callable[[], None]) -> bool:
        """Puts it before the first step's own work: there the shapes are known."""
        if all(layer.built for layer in model._flatten_layers(include_self=False)):
            return False
        train_step = model.train_step
        pending = True

        def first_step(data: object) -> Any:
            nonlocal pending
            if pending:
                pending = False
                # Outside of the function that is being traced: its variables have no values yet.
                with tf.init_scope():
                    model._symbolic_build(data_batch=data)
                    function()
            return train_step(data)

        model.train_step = first_step
        model.make_train_function(force=True)  # keeps the function above
        del model.train_step
        return True

    def average_accumulated(
        self, optimizer: keras.optimizers.Optimizer, leaves_out: Callable[[Variable], bool]
    ) -> None:
        accumulators.average([optimizer], leaves_out)

    def check_again(self, optimizer: DistributedBase) -> None:
        first_step.check_again(optimizer, fingerprints)

    def fit(
        self,
        optimizers: Sequence[DistributedBase],
        original: Callable[..., Any],
        model: keras.Model,
        *args: object,
        **kwargs: object,
    ) -> Any:
        if any(map(asynchronous.is_of_another_job, optimizers)):
            model.train_function = None  # is traced anew
        with failures.shortened_errors():
            return original(model, *args, **kwargs)

    def data_of(self, model: keras.Model) -> Any:
        return [positions.content_of(model), shuffle.user_seed_in_use()]

    def position_of(self, model: keras.Model, in_epoch: bool, not_taken: int) -> dict[str, Any]:
        return dataclasses.asdict(positions.of(model, in_epoch, not_taken))

    def go_to_position(
        self,
        model: keras.Model,
        position: dict[str, Any],
        batch: int,
        if_others: Callable[[], None],
    ) -> None:
        del if_others  # what `data_of` says was compared
        if "states" in position:
            raise other_framework("JAX")
        positions.go_to(model, positions.Position(**position), batch)

    def matrices(self) -> list[Matrix]:
        return [Matrix(*state) for state in low_rank.states()]

    def restore_matrices(self, saved: Sequence[Matrix]) -> None:
        low_rank.restore(low_rank.SavedState(*state) for state in saved)

    def scalar_writer(self, directory: str) -> ScalarWriter:
        return Scalars(directory)

    def install(self) -> None:
        input_waits.leave_out(TensorFlowTrainer, "evaluate", "predict")
