"""Gradients of all workers, as `DistributedOptimizer` asks for them on JAX."""

from __future__ import annotations

import collections
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import keras

from tf_byteps import runtime
from tf_byteps.exchange import names
from tf_byteps.exchange.backup import backup_workers as checked_backup_workers
from tf_byteps.exchange.gradient_arguments import GradientArguments
from tf_byteps.exchange.optimizers import is_overwritten
from tf_byteps.exchange.process_sets import size_of
from tf_byteps.exchange.reduce_op import Average, Max, Min
from tf_byteps.jax.collectives import push_pull_all
from tf_byteps.jax.gradients import push_pull_gradients
from tf_byteps.jax.refusals import check_config

Gradient = jax.Array | None


class GradientReduction(GradientArguments):
    """JAX's reduction of gradients, as arguments say that are checked.

    Gradients of embeddings are dense on JAX, so that `sparse_as_dense` asks for what is.

    Args:
        *args, **kwargs: those of `GradientArguments`.

    Raises:
        NotImplementedError: an argument asks for what does not work on JAX.
        ValueError: an argument cannot be used.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # pyright: ignore[reportArgumentType]
        if not self.merge_repeated_rows:
            raise NotImplementedError(
                "merge_repeated_rows is False, which DistributedOptimizer does not support with "
                "KERAS_BACKEND=jax: leave it out, or use KERAS_BACKEND=tensorflow"
            )

    def reduce(
        self,
        gradients: Sequence[Gradient],
        variables: Sequence[keras.Variable],
        multiplier: float = 1.0,
    ) -> list[Gradient]:
        """Reduces the gradients over all workers, but for those of local variables, and those that
        are a variable's new value.

        Args:
            gradients: arrays of the variables' shapes, or `None`.
            variables: what they are gradients of.
            multiplier: a number that every result is multiplied by.

        Returns:
            The list of results; `None` stays.

        Raises:
            BytePSError: the job asks for what does not work on JAX.
        """
        check_config(runtime.config())
        scoped = self._names(variables)
        results = list(gradients)
        common = []
        for index, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
            if gradient is None or is_overwritten(variable):
                continue
            if self.is_local(variable):
                results[index] = self._scaled_local(gradient, multiplier)
            else:
                common.append(index)
        reduced = push_pull_gradients(
            [gradients[index] for index in common],  # pyright: ignore[reportArgumentType]
            [variables[index] for index in common],
            [scoped[index] for index in common],
            self.compression,
            self.op,
            prescale_factor=1.0 / self.predivide_factor,
            postscale_factor=self.predivide_factor * multiplier,
            backup_workers=self._workers_to_spare(),
        )
        for index, result in zip(common, reduced, strict=True):
            results[index] = result
        return results

    def _workers_to_spare(self) -> int:
        backup_workers = checked_backup_workers(self.backup_workers)
        if self.workers and backup_workers:
            raise ValueError(
                f"backup_workers is {backup_workers}, and an exchange of a process set waits for "
                "all of its workers: set it to 0, or leave process_set out"
            )
        return backup_workers

    def reduce_overwriting(
        self, gradients: Sequence[Gradient], variables: Sequence[keras.Variable]
    ) -> list[Gradient]:
        """Takes the largest numbers over all workers for variables that are overwritten with their
        gradient, as scales of float8 are.

        Args:
            gradients: see `reduce`.
            variables: what they are gradients of.

        Returns:
            The list, with the gradients of other variables as they were.
        """
        chosen = [
            index
            for index, (gradient, variable) in enumerate(zip(gradients, variables, strict=True))
            if gradient is not None and is_overwritten(variable)
        ]
        scoped = self._names(variables, "overwriting")
        largest = push_pull_all(
            [gradients[index] for index in chosen],
            [scoped[index] for index in chosen],
            is_derived=False,
            op=Max,
        )
        results = list(gradients)
        for index, result in zip(chosen, largest, strict=True):
            results[index] = result
        return results

    def _names(self, variables: Sequence[keras.Variable], what: str = "gradient") -> list[str]:
        """One for each variable: its path, with an index if others have the same."""
        counts: collections.Counter[str] = collections.Counter()
        found = []
        for variable in variables:
            name = names.in_scope(self.scope, f"{what}/{variable.path}")
            found.append(f"{name}#{counts[name]}" if counts[name] else name)
            counts[name] += 1
        return found

    def _scaled_local(self, gradient: jax.Array, multiplier: float) -> jax.Array:
        divides = self.scale_local_gradients and self.op == Average
        factor = multiplier / size_of(self.process_set) if divides else multiplier
        return gradient * jnp.asarray(factor, gradient.dtype)


def finite_everywhere(finite: jax.Array, workers: str = "") -> jax.Array:
    """Whether the gradients of all workers are finite (protocol rule 27).

    Args:
        finite: a boolean scalar, this worker's answer.
        workers: `process_sets.scope_of` the workers that are asked.

    Returns:
        A boolean scalar, the same on all workers.
    """
    own = jnp.asarray(finite, jnp.int32)
    name = names.in_scope(workers, "gradients are finite")
    (least,) = push_pull_all([own], [name], is_derived=False, op=Min)
    return least == 1
