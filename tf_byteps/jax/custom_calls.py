"""The engine's calls for programs that XLA has compiled: `cc/xla/compiled_call.h` from Python."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.interpreters import mlir

from tf_byteps.xla_library import library

RUN = "byteps_run"
START = "byteps_start"
BARRIER = "byteps_barrier"
DONE = "byteps_done"
RANK_INFO = "byteps_rank_info"
# On GPUs alone.
START_DETACHED = "byteps_start_detached"
WAIT = "byteps_wait"

#: JAX's name of a platform -> how the library's handlers for it end.
PLATFORMS = {"cpu": "host", "cuda": "cuda"}
# The same -> the name by which XLA looks for handlers.
_OF_XLA = {"cpu": "cpu", "cuda": "CUDA"}

#: Of a run and of a handle, which only gives calls an order.
NUMBER = jax.core.ShapedArray((1,), jnp.uint32)

#: What a rank info asks for: PlaceIndex of cc/xla/rank_info.h.
RANK = {"what": np.int64(0)}

# ExchangeKind of cc/base/tensor_description.h.
KINDS = {"sum": 0, "min": 1, "max": 2, "broadcast": 3, "gather": 4, "product": 7}


@functools.cache
def register() -> None:
    """Tells JAX's XLA of the handlers, once in a process.

    Raises:
        ImportError: the library is missing.
    """
    for platform, ending in PLATFORMS.items():
        of_gpus = (START_DETACHED, WAIT) if platform == "cuda" else ()
        for call in (RUN, START, BARRIER, DONE, RANK_INFO, *of_gpus):
            handler = jax.ffi.pycapsule(getattr(library(), f"{call}_on_{ending}"))
            jax.ffi.register_ffi_target(call, handler, platform=_OF_XLA[platform])


def attributes(
    names: Sequence[str],
    codecs: Sequence[str],
    priorities: Sequence[int],
    kind: str,
    average: bool,
    root_rank: int,
    backup_workers: int = 0,
) -> dict[str, Any]:
    """What a start and a done tell the engine.

    Args:
        names: of the exchanges of one call.
        codecs: of each.
        priorities: of each.
        kind: of all, a key of `KINDS`.
        average: whether the sum is divided by the number of workers.
        root_rank: whose value a broadcast sends.
        backup_workers: how many workers an average need not wait for.
    """
    return {
        "names": ".".join(map(_digits, names)),
        "codecs": ".".join(map(_digits, codecs)),
        "priorities": ".".join(map(str, priorities)),
        "kind": np.int64(KINDS[kind]),
        "average": np.int64(average),
        "root_rank": np.int64(root_rank),
        "backup_workers": np.int64(backup_workers),
    }


def _digits(text: str) -> str:
    return text.encode().hex()


def emit(
    context: mlir.LoweringRuleContext,
    call: str,
    operands: Sequence[tuple[Any, Any]],
    results: Sequence[Any],
    in_place: Mapping[int, int] | None = None,
    with_attributes: Mapping[str, Any] | None = None,
) -> list[Any]:
    """Adds one call to the program that is being made.

    Args:
        context: of the primitive whose lowering it is.
        call: one of this module's.
        operands: each a value of the program, and its `jax.core.ShapedArray`.
        results: a `jax.core.ShapedArray` for each.
        in_place: the number of an operand -> that of the result in its memory.
        with_attributes: what `attributes` returned.

    Returns:
        The results, values of the program.
    """
    rule = jax.ffi.ffi_lowering(
        call, has_side_effect=True, operand_output_aliases=dict(in_place or {})
    )
    typed = context.replace(
        primitive=None, avals_in=[aval for _, aval in operands], avals_out=list(results)
    )
    return list(rule(typed, *(value for value, _ in operands), **(with_attributes or {})))
