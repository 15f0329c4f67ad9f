"""`push_pull`, `broadcast` and `gather` of JAX's arrays, inside and outside of `jax.jit`."""

from collections.abc import Sequence
from typing import Any, overload

import jax
import jax.numpy as jnp

from tf_byteps import runtime
from tf_byteps.exchange import reduce_op
from tf_byteps.exchange.arguments import (
    BACKWARD_ORDER,
    checked_gradient,
    checked_priority,
    checked_root_rank,
)
from tf_byteps.exchange.compression import AnyCompressor
from tf_byteps.exchange.names import call_site, checked as checked_name, in_scope
from tf_byteps.exchange.process_sets import ProcessSet, members_of, scope_of
from tf_byteps.exchange.reduce_op import Average, ReduceOp
from tf_byteps.jax import dtypes
from tf_byteps.jax.compression import Compression
from tf_byteps.jax.exchanges import Exchanges
from tf_byteps.jax.primitive import exchange


@overload
def push_pull(
    value: list[Any] | tuple[Any, ...],
    *,
    average: bool | None = ...,
    op: ReduceOp | str | None = ...,
    name: str | None = ...,
    scope: str = ...,
    compression: AnyCompressor | None = ...,
    prescale_factor: float = ...,
    postscale_factor: float = ...,
    priority: int | None = ...,
    process_set: ProcessSet | None = ...,
) -> list[jax.Array]: ...
@overload
def push_pull(
    value: Any,
    *,
    average: bool | None = ...,
    op: ReduceOp | str | None = ...,
    name: str | None = ...,
    scope: str = ...,
    compression: AnyCompressor | None = ...,
    prescale_factor: float = ...,
    postscale_factor: float = ...,
    priority: int | None = ...,
    process_set: ProcessSet | None = ...,
) -> jax.Array: ...
def push_pull(
    value: Any,
    *,
    average: bool | None = None,
    op: ReduceOp | str | None = None,
    name: str | None = None,
    scope: str = "",
    compression: AnyCompressor | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    priority: int | None = None,
    process_set: ProcessSet | None = None,
) -> Any:
    """Combines an array elementwise over all workers; every worker gets the result.

    Args:
        value: a `jax.Array`, or what `jax.numpy.asarray` makes one of, of any shape, the same on
            all workers; of dtype float32, float64, float16, bfloat16, int8, uint8, int32 or int64.
            Or a list of those: none waits for the others, and the first goes first.
        average: the older way to choose `op`: `True` for `Average`, `False` for `Sum`.
        op: `tf_byteps.Sum`, `Average` (the default), `Min`, `Max` or `Product`, or its name. An
            average needs a floating dtype. Integer sums and products wrap around. Only `Sum` and
            `Average` have gradients.
        name: a string, the same on all workers. Default: derived from the place of the call in the
            program.
        scope: a prefix of the name: `"scope/name"`.
        compression: a member of `tf_byteps.Compression` or its name. See docs/compression.md.
        prescale_factor: a number that the array is multiplied by before it is sent. Floating
            dtypes only.
        postscale_factor: a number that the result is multiplied by. Floating dtypes only.
        priority: an integer; of what waits to be sent, the highest goes first. With a list it is
            the first array's, and falls by one from each to the next. By default what was sent
            first in the first step goes first.
        process_set: a `tf_byteps.ProcessSet` of the workers that exchange the array, of which this
            is one; an average is divided by their number. Default: all workers of the job.

    Returns:
        A `jax.Array` of the same shape and dtype; for a list, the list of results.

    Raises:
        TypeError: the dtype cannot be exchanged or not be compressed.
        ValueError: `average` and `op` are both given, or an average of integers is asked for.
        NotImplementedError: the op or the compression exists, but not here.
        BytePSError: `tf_byteps.init()` was not called. Outside of `jax.jit` also `ExchangeError`:
            the workers disagree, or a process is lost. Inside, JAX raises an error of its own:
            see `exchange_errors`.

    Example:

    >>> step = jax.jit(lambda x: tf_byteps.jax.push_pull(x, op="sum", name="total"))
    """
    is_list = isinstance(value, (list, tuple))
    values = list(value) if is_list else [value]
    its_name = in_scope(scope, exchange_name(name, "push_pull"))
    prefix = in_scope(scope_of(process_set), its_name)
    names = [f"{prefix}/{index}" for index in range(len(values))] if is_list else [prefix]
    results = push_pull_all(
        values,
        names,
        is_derived=name is None,
        op=reduce_op.resolve(average, op),
        compression=compression,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        priority=priority,
    )
    return results if is_list else results[0]


def push_pull_all(
    values: Sequence[Any],
    names: Sequence[str],
    is_derived: bool,
    op: ReduceOp,
    compression: AnyCompressor | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    priority: int | None = None,
    backup_workers: int = 0,
) -> list[jax.Array]:
    """Combines arrays, none of which waits for another.

    Args:
        values: see `push_pull`.
        names: of the exchanges.
        is_derived: whether the names come from the place of the call.
        op: of all.
        compression: see `push_pull`.
        prescale_factor: see `push_pull`.
        postscale_factor: see `push_pull`.
        priority: see `push_pull`.
        backup_workers: how many workers an average need not wait for.

    Returns:
        The list of results.
    """
    chosen = Compression(compression, op)
    first = checked_priority(priority)
    step = 0 if first == BACKWARD_ORDER else 1
    arrays = [dtypes.checked(value, "push_pull") for value in values]
    workers = _size_in(names)
    if not arrays:
        return []
    for array in arrays:
        _check_average(array, op)
    compressed = [chosen.compress(_scaled(array, prescale_factor)) for array in arrays]
    is_average = op == Average
    results = exchange(
        [sent for sent, _ in compressed],
        Exchanges(
            names=tuple(names),
            is_derived=is_derived,
            kind=str(reduce_op.Sum if is_average else op),
            codecs=(chosen.codec,) * len(arrays),
            priorities=tuple(first - index * step for index in range(len(arrays))),
            average=is_average,
            backup_workers=backup_workers,
        ),
        workers,
    )
    return [
        _scaled(decompress(result), postscale_factor)
        for (_, decompress), result in zip(compressed, results)
    ]


def _check_average(array: jax.Array, op: ReduceOp) -> None:
    if op == Average and not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(
            f"an average of {array.dtype} is not exact: pass op=tf_byteps.Sum and divide, or cast "
            "to a floating dtype"
        )


def _scaled(array: jax.Array, factor: float) -> jax.Array:
    if factor == 1.0:
        return array
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"a factor needs a floating dtype, got {array.dtype} and {factor}")
    return array * jnp.asarray(factor, array.dtype)


def exchange_name(name: str | None, kind: str) -> str:
    """The name that the user gave, checked, or one made of the place of the call."""
    return f"{kind}@{call_site()}" if name is None else checked_name(name)


def broadcast(
    value: Any,
    root_rank: int,
    name: str | None = None,
    priority: int | None = None,
    gradient: str = "average",
    process_set: ProcessSet | None = None,
) -> jax.Array:
    """Gives every worker the root's array: a copy of its bits.

    Args:
        value: an array of any shape, the same on all workers; of a dtype that `push_pull` takes,
            or of bool, int16, uint16, uint32, uint64, complex64 or complex128; or random keys.
        root_rank: an integer, the rank of the worker whose value counts.
        name: see `push_pull`.
        priority: see `push_pull`.
        gradient: what the root gets as the gradient of its array: the `"average"` of the workers'
            gradients, or their `"sum"`. The others get zeros.
        process_set: see `push_pull`. `root_rank` is a rank of the job, of a worker that is in it.

    Returns:
        A `jax.Array` of the same shape and dtype.

    Raises:
        TypeError: the dtype cannot be exchanged.
        ValueError: `root_rank` is not a rank of the job, or `gradient` is something else.
        BytePSError: see `push_pull`.

    Example:

    >>> key = tf_byteps.jax.broadcast(jax.random.key(seed), root_rank=0, name="key")
    """
    root_rank = checked_root_rank(root_rank, process_set)
    its_name = in_scope(scope_of(process_set), exchange_name(name, "broadcast"))
    return broadcast_all([value], [its_name], name is None, root_rank, priority, gradient)[0]


def broadcast_all(
    values: Sequence[Any],
    names: Sequence[str],
    is_derived: bool,
    root_rank: int,
    priority: int | None = None,
    gradient: str = "average",
) -> list[Any]:
    """Gives every worker the root's arrays.

    Args:
        values: see `broadcast`.
        names: of the exchanges.
        is_derived: whether the names come from the place of the call.
        root_rank: see `broadcast`.
        priority: see `broadcast`, of all.
        gradient: see `broadcast`.

    Returns:
        The list of results.
    """
    root_rank, gradient = checked_root_rank(root_rank), checked_gradient(gradient)
    first = checked_priority(priority)
    encoded = [dtypes.to_copy(value, "broadcast") for value in values]
    workers = _size_in(names)
    if not encoded:
        return []
    results = exchange(
        [sent for sent, _ in encoded],
        Exchanges(
            names=tuple(names),
            is_derived=is_derived,
            kind="broadcast",
            codecs=("",) * len(encoded),
            priorities=(first,) * len(encoded),
            root_rank=root_rank,
            gradient=gradient,
        ),
        workers,
    )
    return [decode(result) for (_, decode), result in zip(encoded, results)]


def gather(
    value: Any,
    name: str | None = None,
    priority: int | None = None,
    gradient: str = "average",
    process_set: ProcessSet | None = None,
) -> jax.Array:
    """Concatenates the workers' arrays along axis 0, in rank order; every worker gets the result.

    Args:
        value: an array of shape `[rows, ...]`, the same on all workers, since the shape of the
            result is part of the program. Dtypes as for `broadcast`.
        name: see `push_pull`.
        priority: see `push_pull`.
        gradient: what a worker gets as the gradient of its rows: the `"average"` of the workers'
            gradients, or their `"sum"`.
        process_set: see `push_pull`. Rows come in the order of the ranks of its workers.

    Returns:
        A `jax.Array` of shape `[rows * workers, ...]` and the same dtype.

    Raises:
        TypeError: the dtype cannot be exchanged.
        ValueError: the array is a scalar, or `gradient` is something else.
        BytePSError: see `push_pull`. Also where the workers' numbers of rows differ.

    Example:

    >>> all_losses = tf_byteps.jax.gather(losses, name="losses")
    """
    gradient = checked_gradient(gradient)
    derived = in_scope(scope_of(process_set), exchange_name(name, "gather"))
    sent, decode = dtypes.to_copy(value, "gather")
    check_rows(value)
    exchanges = Exchanges(
        names=(derived,),
        is_derived=name is None,
        kind="gather",
        codecs=("",),
        priorities=(checked_priority(priority),),
        gradient=gradient,
    )
    return decode(exchange([sent], exchanges, _size_in([derived]))[0])


def _size_in(names: Sequence[str]) -> int:
    """How many workers exchange under names, which are all of one process set or of none."""
    workers = runtime.size()
    members = members_of(names[0]) if names else None
    return workers if members is None else len(members)


def check_rows(value: Any) -> None:
    """Raises ValueError if what is to be gathered has no rows."""
    if jnp.ndim(value) == 0:
        raise ValueError(
            "a scalar has no axis 0 to gather along: reshape it to [1], for one element per worker"
        )
