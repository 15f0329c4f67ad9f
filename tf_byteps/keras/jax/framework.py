"""JAX, as `tf_byteps.keras` needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import keras
import numpy as np

from tf_byteps import runtime
from tf_byteps.exchange import host
from tf_byteps.exchange.arguments import checked_root_rank
from tf_byteps.exchange.compression import AnyCompressor, Compression
from tf_byteps.exchange.names import in_scope
from tf_byteps.exchange.process_sets import ProcessSet, scope_of, size_of
from tf_byteps.exchange.reduce_op import Average, ReduceOp
from tf_byteps.gradients import accumulating
from tf_byteps.jax import collectives, dtypes
from tf_byteps.keras import first_step
from tf_byteps.keras.distributed import DistributedBase
from tf_byteps.keras.interface import Framework, ScalarWriter, other_framework
from tf_byteps.keras.jax import training
from tf_byteps.keras.jax.optimizer import Distributed, DistributedLossScale
from tf_byteps.keras.jax.reduction import GradientReduction
from tf_byteps.keras.jax.scalars import Scalars
from tf_byteps.private.keras_jax import JAXTrainer
from tf_byteps.strategy.jax import (
    empty_epochs,
    failures,
    initial_values,
    position as positions,
    scopes,
)
from tf_byteps.types import TensorLike, Variable
from tf_byteps.wrapping import wrap_all


class Jax(Framework):
    """JAX's part of `tf_byteps.keras`."""

    classes = (Distributed, DistributedLossScale)
    trainer = JAXTrainer
    reduction = GradientReduction
    otherwise = "in a loop of your own, tf_byteps.jax.push_pull_tree averages gradients"
    counts_input = False

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
        name = collectives.exchange_name(name, "push_pull")
        with jax.enable_x64(True):  # as NumPy's arrays have it
            return np.array(
                collectives.push_pull(
                    _array(value, "push_pull"),
                    name=name,
                    average=average,
                    prescale_factor=prescale_factor,
                    postscale_factor=postscale_factor,
                    op=op,
                    compression=compression,
                    process_set=process_set,
                )
            )

    def allgather(
        self, value: TensorLike, name: str | None, process_set: ProcessSet | None
    ) -> np.ndarray:
        name = in_scope(scope_of(process_set), collectives.exchange_name(name, "gather"))
        array = _array(value, "allgather")
        with jax.enable_x64(True):
            dtypes.to_copy(array, "allgather")  # or an error
        collectives.check_rows(array)
        with failures.in_a_sentence():
            return host.copy_all([array], [name], "gather")[0]

    def reducescatter(
        self,
        value: TensorLike,
        name: str | None,
        op: ReduceOp | str,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet | None,
    ) -> np.ndarray:
        name = collectives.exchange_name(name, "reducescatter")
        if not _array(value, "reducescatter").ndim:
            raise ValueError("a scalar has no rows to scatter: reshape it to [1]")
        reduced = self.push_pull(
            value, name, None, prescale_factor, postscale_factor, op, Compression.none, process_set
        )
        its_rank = runtime.rank() if process_set is None else process_set.rank()
        return np.array_split(reduced, size_of(process_set))[its_rank or 0]

    def broadcast(
        self, value: TensorLike, root_rank: int, name: str | None, process_set: ProcessSet | None
    ) -> np.ndarray:
        name = collectives.exchange_name(name, "broadcast")
        with jax.enable_x64(True):
            array = _array(value, "broadcast")
            return np.array(collectives.broadcast(array, root_rank, name, process_set=process_set))

    def broadcast_variables(
        self,
        variables: Iterable[Variable],
        root_rank: int,
        scope: str = "",
        process_set: ProcessSet | None = None,
    ) -> None:
        if scope_of(process_set):
            raise NotImplementedError(
                "broadcast_variables of a process set is for KERAS_BACKEND=tensorflow: set each "
                "variable to what tf_byteps.jax.broadcast(process_set=...) returns"
            )
        named = []
        for variable in keras.tree.flatten(variables):
            if not isinstance(variable, keras.Variable):
                raise TypeError(
                    f"broadcast_variables takes keras.Variable, got {type(variable)}: give "
                    "tf_byteps.jax.broadcast_tree arrays, and go on with what it returns"
                )
            named.append((in_scope(scope, variable.path), variable))
        with failures.in_a_sentence():
            initial_values.broadcast("variables to broadcast", named, checked_root_rank(root_rank))

    def before_first_step(self, model: keras.Model, function: Callable[[], None]) -> bool:
        return False  # `fit` has built it

    def average_accumulated(
        self, optimizer: keras.optimizers.Optimizer, leaves_out: Callable[[Variable], bool]
    ) -> None:
        accumulating.average([optimizer], _average, leaves_out)

    def strategy_of(self, model: keras.Model) -> Any:
        return scopes.adopt(model)  # one in whose scope `fit` is called

    def check_again(self, optimizer: DistributedBase) -> None:
        first_step.forget(optimizer)  # `fit` does, behind callbacks that broadcast

    def fit(
        self,
        optimizers: Sequence[DistributedBase],
        original: Callable[..., Any],
        model: keras.Model,
        *args: object,
        **kwargs: object,
    ) -> Any:
        return training.fit(optimizers, original, model, *args, **kwargs)

    def read_variables(self, model: keras.Model) -> None:
        model.jax_state_sync()

    def data_of(self, model: keras.Model) -> Any:
        positions.begin(model)
        return None  # nothing has been read yet

    def position_of(self, model: keras.Model, in_epoch: bool, not_taken: int) -> dict[str, Any]:
        return positions.of(model, in_epoch)

    def go_to_position(
        self,
        model: keras.Model,
        position: dict[str, Any],
        batch: int,
        if_others: Callable[[], None],
    ) -> None:
        if "states" not in position:
            raise other_framework("TensorFlow")
        positions.go_to(model, position, batch, if_others)

    def scalar_writer(self, directory: str) -> ScalarWriter:
        return Scalars(directory)

    def install(self) -> None:
        wrap_all(training.changes())
        empty_epochs.install()


def _array(value: TensorLike, what: str) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind in "mMOSU":
        raise TypeError(
            f"{what} cannot exchange an array of dtype {array.dtype}: give it numbers; "
            "broadcast_object and allgather_object take text"
        )
    return array


def _average(optimizer: keras.optimizers.Optimizer, named: list[tuple[str, Any]]) -> None:
    del optimizer
    averages = collectives.push_pull_all(
        [variable.value for _, variable in named],
        [name for name, _ in named],
        is_derived=False,
        op=Average,
    )
    for (_, variable), average in zip(named, averages, strict=True):
        variable.assign(average)
