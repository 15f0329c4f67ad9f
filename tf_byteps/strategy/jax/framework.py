"""JAX, as `strategy.fit` needs it."""

from collections.abc import Sequence
from typing import Any

from tf_byteps.jax.fingerprints import fingerprints
from tf_byteps.strategy.fit.framework import Framework
from tf_byteps.strategy.jax import batches


class Jax(Framework):
    """JAX's part of `fit`. Gradients are exchanged before an optimizer accumulates them."""

    def fingerprints(self, variables: Sequence[Any]) -> list[int]:
        return fingerprints([variable.value for variable in variables])

    def last_rows(self, model: Any) -> int | None:
        return batches.last_rows(model)
