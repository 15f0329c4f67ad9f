"""Copies of arrays in host memory, which outlive the arrays and the steps that use them up."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np


def copies_on_host(values: Sequence[jax.Array]) -> list[Any]:
    """Copies of arrays, which outlive them.

    Those of a GPU's arrays come to page-locked memory, which JAX keeps for the next ones. The call
    does not wait for them: a step that is given the arrays' memory comes after the copies.

    Args:
        values: arrays of one device each.

    Returns:
        A list of what `np.asarray` takes.
    """
    devices = set[Any]().union(*(value.devices() for value in values))
    if all(device.platform == "cpu" for device in devices) or len(devices) > 1:
        return [np.array(value) for value in values]
    on_host = jax.sharding.SingleDeviceSharding(devices.pop(), memory_kind="pinned_host")
    try:
        return jax.device_put(list(values), on_host)
    except jax.errors.JaxRuntimeError:  # no more page-locked memory
        return [np.array(value) for value in values]
