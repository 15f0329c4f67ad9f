"""What `tf_byteps.keras` needs of the framework that Keras runs on: each has a class of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import numpy as np

from tf_byteps.exchange.compression import AnyCompressor
from tf_byteps.exchange.gradient_arguments import GradientArguments
from tf_byteps.exchange.process_sets import ProcessSet
from tf_byteps.exchange.reduce_op import ReduceOp
from tf_byteps.exchange.strategies import strategy_of
from tf_byteps.keras.distributed import Classes, DistributedBase
from tf_byteps.types import TensorLike, Variable


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
    ) -> np.ndarray:
        """See `tf_byteps.keras`, which has functions of this name and those of the next three."""
        raise NotImplementedError

    def allgather(self, value: TensorLike, name: str | None) -> np.ndarray:
        raise NotImplementedError

    def reducescatter(
        self,
        value: TensorLike,
        name: str | None,
        op: ReduceOp | str,
        prescale_factor: float,
        postscale_factor: float,
    ) -> np.ndarray:
        raise NotImplementedError

    def broadcast(self, value: TensorLike, root_rank: int, name: str | None) -> np.ndarray:
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
