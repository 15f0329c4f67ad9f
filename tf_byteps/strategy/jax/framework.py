"""JAX, as `strategy.fit` needs it."""

import hashlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from tf_byteps.strategy.fit.framework import Framework
from tf_byteps.strategy.jax import batches


class Jax(Framework):
    """JAX's part of `fit`. Gradients are exchanged before an optimizer accumulates them."""

    def fingerprints(self, variables: Sequence[Any]) -> list[int]:
        return [_fingerprint(variable) for variable in variables]

    def last_rows(self, model: Any) -> int | None:
        return batches.last_rows(model)


def _fingerprint(variable: Any) -> int:
    value = np.ascontiguousarray(keras.ops.convert_to_numpy(variable))
    digest = hashlib.blake2b(str(value.dtype).encode(), digest_size=8)
    digest.update(value.tobytes())
    return int.from_bytes(digest.digest(), "little", signed=True)
