"""Copies of arrays, which outlive the arrays and the steps that use them up."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def copies_on_device(values: Sequence[jax.Array]) -> list[jax.Array] | None:
    """Copies of arrays in the memory of their GPU, which has them in a millisecond or two.

    From there `copies_on_host` can bring them to the host while the GPU computes: steps that use up
    the arrays wait for neither.

    Args:
        values: arrays of one device each.

    Returns:
        A list of arrays, or `None`: they are not on a GPU, or it might not have the memory.
    """
    gpu = _gpu_of(values)
    if gpu is None:
        return None
    memory = gpu.memory_stats() or {}
    free = memory.get("bytes_limit", 0) - memory.get("peak_bytes_in_use", 0)
    if free < 2 * sum(value.nbytes for value in values):  # it is not in one piece
        return None
    try:
        return _copied(list(values))
    except jax.errors.JaxRuntimeError:  # other processes have it
        return None


@jax.jit
def _copied(values: list[jax.Array]) -> list[jax.Array]:
    return [jnp.copy(value) for value in values]


def copies_on_host(values: Sequence[jax.Array]) -> list[Any]:
    """Copies of arrays, which outlive them.

    Those of a GPU's arrays come to page-locked memory, which JAX keeps for the next ones. The call
    does not wait for them: a step that is given the arrays' memory comes after the copies.

    Args:
        values: arrays of one device each.

    Returns:
        A list of what `np.asarray` takes.
    """
    gpu = _gpu_of(values)
    if gpu is None:
        return [np.array(value) for value in values]
    on_host = jax.sharding.SingleDeviceSharding(gpu, memory_kind="pinned_host")
    try:
        return jax.device_put(list(values), on_host)
    except jax.errors.JaxRuntimeError:  # no more page-locked memory
        return [np.array(value) for value in values]


def _gpu_of(values: Sequence[jax.Array]) -> Any:
    """The one device that has all arrays, if it is no CPU; else `None`."""
    devices = set[Any]().union(*(value.devices() for value in values))
    if len(devices) != 1:
        return None
    (device,) = devices
    return None if device.platform == "cpu" else device
