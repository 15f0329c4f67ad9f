"""Initializers whose values for a row can be made without those of the other rows."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

#: Kinds of distributions, as cc/server/table.h numbers them.
CONSTANT, UNIFORM, NORMAL, TRUNCATED_NORMAL = range(4)
_TRUNCATED = 0.87962566103423978  # the standard deviation of a normal one, cut at two of them


def of(
    table: str, initializer: Any, width: int, dtype: str, who: str
) -> tuple[int, tuple[float, float]]:
    """How the numbers of a row are distributed.

    Args:
        table: the table's name.
        initializer: a `keras.initializers.Initializer`.
        width: numbers in a row.
        dtype: of the rows.
        who: makes them, for the message.

    Returns:
        The kind; and the value and 0, the limits, or mean and standard deviation.

    Raises:
        ValueError: it is another initializer.
    """
    kinds = keras.initializers
    found = initializer
    if type(found) in (kinds.Zeros, kinds.Ones):
        return CONSTANT, (float(type(found) is kinds.Ones), 0.0)
    if type(found) is kinds.Constant and np.ndim(found.value) == 0:
        return CONSTANT, (constant(found.value, dtype), 0.0)
    if type(found) is kinds.RandomUniform:
        return UNIFORM, (float(found.minval), float(found.maxval))
    if type(found) in (kinds.RandomNormal, kinds.TruncatedNormal):
        is_truncated = type(found) is kinds.TruncatedNormal
        mean, deviation = (float(getattr(found, each)) for each in ("mean", "stddev"))
        return TRUNCATED_NORMAL if is_truncated else NORMAL, (mean, deviation)
    if isinstance(found, kinds.VarianceScaling) and found.mode == "fan_out":
        scale = found.scale / max(1, width)
        if found.distribution == "uniform":
            limit = float(np.sqrt(3 * scale))
            return UNIFORM, (-limit, limit)
        deviation = float(np.sqrt(scale))
        if found.distribution == "untruncated_normal":
            return NORMAL, (0.0, deviation)
        return TRUNCATED_NORMAL, (0.0, deviation / _TRUNCATED)
    raise ValueError(
        f"initializer of the table {table!r} is a {type(found).__name__}, whose rows {who} cannot "
        "make: use a constant, RandomUniform, RandomNormal, TruncatedNormal, or "
        "VarianceScaling(mode='fan_out')"
    )


def constant(value: Any, dtype: str) -> float:
    """A number as Keras rounds it, which may be to float32 first."""
    made: Any = keras.initializers.Constant(value)((1,), dtype=dtype)
    return float(np.asarray(keras.ops.convert_to_numpy(made)).item())


def seed_of(initializer: Any) -> int:
    """The seed of an initializer; 0 if it has none."""
    seed = getattr(initializer, "seed", None)
    if isinstance(seed, keras.random.SeedGenerator):
        seed = getattr(seed, "_initial_seed", None)
    return int(seed) if seed is not None else 0
