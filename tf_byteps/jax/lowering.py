"""How exchanges become custom calls of a program.

XLA knows no order but that of data, and workers whose arrays differ in shape have programs of their
own. So the starts of a program come in one order everywhere: that in which JAX has traced them.
Each comes after the last one before it, by a handle; and what a group waits for comes after all of
its starts. The second use of a name comes after the end of the first (protocol rules 11 and 12).

The order is kept within a block: the body of a loop, a branch of `jax.lax.cond` and a function that
is jitted by itself have orders of their own.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from jax.extend import core
from jax.interpreters import mlir

from tf_byteps import _engine, runtime
from tf_byteps.declaration import Declaration
from tf_byteps.errors import BytePSError, ExchangeError
from tf_byteps.exchange import start_order
from tf_byteps.jax import custom_calls
from tf_byteps.jax.custom_calls import NUMBER, emit
from tf_byteps.jax.exchanges import Exchanges

_Typed = tuple[Any, Any]  # a value of the program, and its jax.core.ShapedArray


@dataclasses.dataclass(frozen=True)
class _Early:
    """Exchanges that one call has started before the operation that ends them."""

    names: tuple[str, ...]
    handle: _Typed


@dataclasses.dataclass
class _Block:
    """What has been made of a function, of a branch or of a loop's body."""

    at: Any
    run: _Typed
    last: list[_Typed] = dataclasses.field(default_factory=list)
    early: list[_Early] = dataclasses.field(default_factory=list)
    ends: dict[str, _Typed] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class _Program:
    """What has been made of a program. It is gone when JAX has made the program."""

    blocks: list[_Block] = dataclasses.field(default_factory=list)
    uses: dict[str, int] = dataclasses.field(default_factory=dict)
    given: list[tuple[Any, dict[str, str]]] = dataclasses.field(default_factory=list)

    def block(self, context: mlir.LoweringRuleContext) -> _Block:
        """The one that is being made."""
        at = _current_block()
        for block in reversed(self.blocks):
            if block.at == at:
                return block
        (run,) = emit(context, custom_calls.RUN, [], [NUMBER])
        self.blocks.append(_Block(at, (run, NUMBER)))
        return self.blocks[-1]

    def names(self, exchanges: Exchanges) -> list[str]:
        """The names under which exchanges travel."""
        if exchanges.is_derived:
            return [self._numbered(name) for name in exchanges.names]
        known = self._names_of_function()
        for name in exchanges.names:
            if name not in known:
                known[name] = self._numbered(name)
        return [known[name] for name in exchanges.names]

    def _names_of_function(self) -> dict[str, str]:
        """A name that the user gave stays itself in a function: in both branches of a condition.
        Two functions, such as those that `jax.checkpoint` makes, may run at the same time."""
        function = _current_block().owner
        while function.operation.name != "func.func":
            function = function.operation.parent
        for known, names in self.given:
            if known == function.operation:
                return names
        self.given.append((function.operation, {}))
        return self.given[-1][1]

    def _numbered(self, name: str) -> str:
        """`name`, with `#1`, `#2`, ... for its further uses."""
        index = self.uses[name] = self.uses.get(name, -1) + 1
        return f"{name}#{index}" if index else name


def lower(
    context: mlir.LoweringRuleContext, *values: Any, exchanges: Exchanges, **_: Any
) -> list[Any]:
    """The rule of the exchange's primitive on CPUs and NVIDIA's GPUs."""
    check_one_device(context)
    program = program_of(context)
    names = program.names(exchanges)
    block = program.block(context)
    operands = list(zip(values, context.avals_in))
    declare(exchanges, names, context.avals_in)
    outs = list(context.avals_out)
    early = _take_early(block, names)
    begun_early = {place for group, _ in early for place in group}
    rest = [place for place in range(len(names)) if place not in begun_early]
    groups = [[i] for i in rest] if exchanges.kind == "gather" else _groups(context, operands, rest)
    started = [(group, [operands[i] for i in group], handle, []) for group, handle in early]
    for group in groups:
        begun, order, room = begin(
            context, exchanges, names, group, operands, outs, block, block.last
        )
        started.append((group, begun, order[0], room))
    barrier = started[0][2]
    if len(started) > 1 or early:
        handles = [handle for _, _, handle, _ in started]
        (together,) = emit(context, custom_calls.BARRIER, [*block.last, *handles], [NUMBER])
        barrier = (together, NUMBER)
    block.last = [barrier]
    results: list[Any] = [None] * len(names)
    for group, begun, _handle, room in started:
        ended = _end(context, exchanges, names, group, [*begun, barrier, *room], outs, block)
        for place, result in zip(group, ended):
            results[place] = result
            block.ends[names[place]] = (result, outs[place])
    return results


def lower_start(
    context: mlir.LoweringRuleContext, *values: Any, exchanges: Exchanges, **_: Any
) -> list[Any]:
    """The rule of the primitive that starts exchanges before what needs the further operands.

    The exchange's own primitive, which gets the results, declares and ends them. The place of this
    start among others does not matter: it waits for none, and each end comes after it.
    """
    check_one_device(context)
    if not can_hold_back(context, context.avals_in[len(exchanges.names) :]):
        return list(values)
    program = program_of(context)
    names = program.names(exchanges)
    block = program.block(context)
    operands = list(zip(values, context.avals_in))
    group = list(range(len(names)))
    passed = operands[len(names) :]
    begun, order, _room = begin(context, exchanges, names, group, operands, [], block, [], passed)
    block.early.append(_Early(tuple(names), order[0]))
    return [value for value, _aval in [*begun, *order[1:]]]


def program_of(context: mlir.LoweringRuleContext) -> _Program:
    """What has been made of the program that is being made."""
    return context.module_context.cached_primitive_lowerings.setdefault("tf_byteps", _Program())


def _take_early(block: _Block, names: list[str]) -> list[tuple[list[int], _Typed]]:
    """What has been started of these exchanges: their places, and a handle."""
    place_of = {name: place for place, name in enumerate(names)}
    taken = [each for each in block.early if each.names[0] in place_of]
    block.early = [each for each in block.early if each.names[0] not in place_of]
    return [([place_of[name] for name in each.names], each.handle) for each in taken]


def can_hold_back(context: mlir.LoweringRuleContext, passed: Sequence[Any]) -> bool:
    """As CanHoldBack of cc/tf/xla_kernels.cc: where something travels, and XLA need not copy."""
    if "cuda" not in context.module_context.platforms:
        return True
    return not _is_by_nccl(context) and all(
        len(aval.shape) < 4 or (len(aval.shape) == 4 and aval.dtype.itemsize <= 2)
        for aval in passed
    )


def _is_by_nccl(context: mlir.LoweringRuleContext) -> bool:
    """Whether all workers are on one host, and exchange between its GPUs."""
    is_gpu = "cuda" in context.module_context.platforms
    return is_gpu and runtime.size() == runtime.local_size()


def begin(
    context: mlir.LoweringRuleContext,
    exchanges: Exchanges,
    names: list[str],
    group: list[int],
    operands: list[_Typed],
    outs: list[Any],
    block: _Block,
    after: list[_Typed],
    passed: Sequence[_Typed] = (),
) -> tuple[list[_Typed], list[_Typed], list[_Typed]]:
    """Adds a start to the program.

    Args:
        context: of the primitive whose lowering it is.
        exchanges: of the primitive.
        names: under which they travel.
        group: the places of those that this call starts.
        operands: of the primitive; those of `exchanges` come first.
        outs: the types of its results, which a gather needs.
        block: the one that is being made.
        after: what is there before the start.
        passed: what is used after the start only.

    Returns:
        What is in flight, a handle and what has passed, and room for a gather's result.
    """
    given = [operands[i] for i in group]
    avals = [aval for _, aval in given]
    after = after + [block.ends[names[i]] for i in group if names[i] in block.ends]
    further = [NUMBER, *(aval for _, aval in passed)]
    room = [outs[i] for i in group] if exchanges.kind == "gather" else []
    count = len(group)
    in_place = {number + 1: number for number in range(count)}
    in_place.update({count + 1 + number: count + 1 + number for number in range(len(passed))})
    results = emit(
        context,
        custom_calls.START,
        [block.run, *given, *passed, *after],
        [*avals, *further, *room],
        in_place,
        exchanges.attributes(names, group),
    )
    end = count + len(further)
    return (
        list(zip(results[:count], avals)),
        list(zip(results[count:end], further)),
        list(zip(results[end:], room)),
    )


def _end(
    context: mlir.LoweringRuleContext,
    exchanges: Exchanges,
    names: list[str],
    group: list[int],
    operands: list[_Typed],
    outs: list[Any],
    block: _Block,
) -> list[Any]:
    # The result of a gather is in its room, which comes after the value and the handle.
    in_place = {number + 1: number for number in range(len(group))}
    if exchanges.kind == "gather":
        in_place = {3: 0}
    return emit(
        context,
        custom_calls.DONE,
        [block.run, *operands],
        [outs[i] for i in group],
        in_place,
        exchanges.attributes(names, group),
    )


def _current_block() -> Any:
    point: Any = mlir.ir.InsertionPoint.current
    return point.block


def declare(exchanges: Exchanges, names: list[str], avals: Sequence[Any]) -> None:
    """Declares exchanges to the engine, but for rows, which are declared when they are sent.

    In one message, so that placing them costs one round trip.

    Raises:
        ExchangeError: the engine cannot, as when a worker is lost.
    """
    if exchanges.kind == "gather":
        return
    try:
        _engine.declare(
            [
                Declaration(
                    name,
                    aval.dtype.name,
                    aval.shape,
                    exchanges.kind,
                    exchanges.average,
                    exchanges.root_rank,
                    exchanges.backup_workers,
                    codec=codec,
                )
                for name, aval, codec in zip(names, avals, exchanges.codecs)
            ]
        )
    except _engine.EngineError as error:
        raise ExchangeError(str(error), error.code) from None


def _groups(
    context: mlir.LoweringRuleContext, operands: list[_Typed], places: list[int]
) -> list[list[int]]:
    """Neighbours that one start takes: see BytesOfAStart of cc/tf/xla_kernels.cc."""
    avals = [operands[place][1] for place in places]
    sizes = [aval.size * aval.dtype.itemsize for aval in avals]
    limit = start_order.MEGABYTE
    if _is_by_nccl(context):
        limit = min(max(sum(sizes) // 16, 8 * limit), 64 * limit)
    return [[places[i] for i in group] for group in start_order.neighbors(sizes, limit)]


def check_one_device(context: mlir.LoweringRuleContext) -> None:
    """Raises BytePSError if the program is for several devices."""
    axes = context.module_context.axis_context
    mesh = getattr(axes, "mesh", None)
    devices = mesh.size if mesh is not None else getattr(axes, "num_devices", 1)
    if devices > 1:
        raise BytePSError(
            f"an exchange in a program for {devices} devices of this process: a worker has one "
            "device; start one worker for each device (bpslaunch -np), or call push_pull outside "
            "of the function on arrays that are on one device"
        )


def _refuse_platform(context: mlir.LoweringRuleContext, *_: Any, **__: Any) -> list[Any]:
    raise BytePSError(
        f"tf_byteps exchanges JAX's arrays on {' and '.join(custom_calls.PLATFORMS)}, not on "
        f"{', '.join(context.module_context.platforms)}: choose another backend with JAX_PLATFORMS"
    )


def register(primitive: core.Primitive, rule: Callable[..., list[Any]]) -> None:
    """Gives a primitive its rule for the platforms that have handlers."""
    mlir.register_lowering(primitive, _refuse_platform, cacheable=False)
    for platform in custom_calls.PLATFORMS:
        mlir.register_lowering(primitive, rule, platform=platform, cacheable=False)
