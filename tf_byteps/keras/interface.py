"""What `tf_byteps.keras` needs of the framework that Keras runs on: each has a class of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from tf_byteps.errors import on_all_workers
from tf_byteps.exchange.compression import AnyCompressor
from tf_byteps.exchange.gradient_arguments import GradientArguments
from tf_byteps.exchange.process_sets import ProcessSet
from tf_byteps.exchange.reduce_op import ReduceOp
from tf_byteps.exchange.strategies import strategy_of
from tf_byteps.keras.distributed import Classes, DistributedBase
from tf_byteps.types import TensorLike, Variable


class Matrix(NamedTuple):
    """What a worker keeps of a matrix's gradient that it compresses by `powersgd`."""

    name: str
    shape: tuple[int, int]
    rank: int
    lost: np.ndarray
    right: np.ndarray


def other_framework(name: str) -> Exception:
    """An error of all workers: a checkpoint within a training is one of another framework.

    Args:
        name: of that.
    """
    return on_all_workers(
        ValueError(
            f"the checkpoint is of a training with Keras on {name}, which reads its data in "
            f"another way: go on with KERAS_BACKEND={name.lower()}, or begin in another directory "
            "with the weights of this one"
        )
    )


class ScalarWriter:
    """Writes scalars to an event file of TensorBoard's."""

    def write(self, name: str, value: float, position: int) -> None:
        """Adds a point.

        Args:
            name: the scalar's.
            value: of the scalar.
            position: on the axis, such as a number of steps.
        """
        raise NotImplementedError

    def flush(self) -> None:
        """What was written is in the file when this returns."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends the file."""
        raise NotImplementedError


class Framework:
    """A framework, with its exchanges and its parts of a training.

    Attributes:
        classes: of distributed optimizers.
        trainer: the class of Keras whose `fit` trains.
        reduction: takes the arguments of `GradientArguments`, and reduces gradients.
        otherwise: what there is for a loop without a Keras optimizer, for an error.
        counts_input: whether the engine's counters have samples, and the waits for them.
    """

    classes: Classes
    trainer: type
    reduction: type[GradientArguments]
    otherwise: str
    counts_input: bool

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
        """See `tf_byteps.keras`, which has functions of this name and those of the next three."""
        raise NotImplementedError

    def allgather(
        self, value: TensorLike, name: str | None, process_set: ProcessSet | None
    ) -> np.ndarray:
        raise NotImplementedError

    def reducescatter(
        self,
        value: TensorLike,
        name: str | None,
        op: ReduceOp | str,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet | None,
    ) -> np.ndarray:
        raise NotImplementedError

    def broadcast(
        self, value: TensorLike, root_rank: int, name: str | None, process_set: ProcessSet | None
    ) -> np.ndarray:
        raise NotImplementedError

    def broadcast_variables(
        self,
        variables: Iterable[Variable],
        root_rank: int,
        scope: str = "",
        process_set: ProcessSet | None = None,
    ) -> None:
        """Sets variables to the root's values, on all workers. A collective."""
        raise NotImplementedError

    def before_first_step(self, model: keras.Model, function: Callable[[], None]) -> bool:
        """Has a model call a function before its first step, when it is built.

        Returns:
            Whether it will. If not, it is built already.
        """
        raise NotImplementedError

    def average_accumulated(
        self, optimizer: keras.optimizers.Optimizer, leaves_out: Callable[[Variable], bool]
    ) -> None:
        """Sets what an optimizer accumulates to the average over all workers. A collective."""
        raise NotImplementedError

    def strategy_of(self, model: keras.Model) -> Any:
        """The `BytePSStrategy` that is to train a model, or `None`."""
        return strategy_of(model)

    def check_again(self, optimizer: DistributedBase) -> None:
        """Has the workers' weights compared once more, after a training that has failed."""
        raise NotImplementedError

    def fit(
        self,
        optimizers: Sequence[DistributedBase],
        original: Callable[..., Any],
        model: keras.Model,
        *args: object,
        **kwargs: object,
    ) -> Any:
        """Calls Keras's `fit` of workers that train together: errors are a sentence.

        Args:
            optimizers: of the model, those that are distributed.
            original: Keras's `fit`, which takes what follows.
        """
        raise NotImplementedError

    def read_variables(self, model: keras.Model) -> None:
        """Within an epoch the variables of a model have their values when this returns."""

    def data_of(self, model: keras.Model) -> Any:
        """What is seen of a training's data and their order where `fit` begins: a value for JSON,
        see `content.same`."""
        raise NotImplementedError

    def position_of(self, model: keras.Model, in_epoch: bool, not_taken: int) -> dict[str, Any]:
        """Where a training is in its input: a value for JSON.

        Args:
            model: a `keras.Model` in `fit`.
            in_epoch: whether an epoch has begun, so that batches of it are left perhaps.
            not_taken: how many batches Keras has counted already that are not taken yet.
        """
        raise NotImplementedError

    def go_to_position(
        self,
        model: keras.Model,
        position: dict[str, Any],
        batch: int,
        if_others: Callable[[], None],
    ) -> None:
        """Brings a training to a position, before its first epoch takes a batch.

        Args:
            model: a `keras.Model` in `fit`.
            position: of an earlier training with the same data.
            batch: the number of the epoch's next batch.
            if_others: called when it shows later that the data are others.

        Raises:
            ValueError: it is the position of a training of another framework.
        """
        raise NotImplementedError

    def matrices(self) -> list[Matrix]:
        """What this worker keeps of matrices, besides the engine's residuals."""
        return []

    def restore_matrices(self, saved: Sequence[Matrix]) -> None:
        """Takes up what `matrices` returned. Where there is no `powersgd`, nothing needs it."""

    def scalar_writer(self, directory: str) -> ScalarWriter:
        """Makes a writer of a new event file.

        Args:
            directory: of the file; is made, too.

        Raises:
            OSError: it cannot be made.
            ImportError: a package is not installed.
        """
        raise NotImplementedError

    def install(self) -> None:
        """Changes in Keras what only this framework needs, see `hooks`. Called once."""
        raise NotImplementedError
