"""How exchanges that outlast a program become custom calls: the rules of `detached`."""

from collections.abc import Sequence
from typing import Any

from jax.interpreters import mlir

from tf_byteps.errors import BytePSError
from tf_byteps.jax import custom_calls, lowering
from tf_byteps.jax.custom_calls import NUMBER, emit
from tf_byteps.jax.exchanges import Exchanges


def _declared(
    context: mlir.LoweringRuleContext, values: Sequence[Any], exchanges: Exchanges, passed: int
) -> tuple[list[str], list[Any], list[Any], list[Any]]:
    """The names of what a program starts, which it declares, and the operands in three groups.

    They are what the exchanges send, what is used after the start only, and what comes before it.
    """
    lowering.check_one_device(context)
    names = lowering.program_of(context).names(exchanges)
    count = len(names)
    lowering.declare(exchanges, names, context.avals_in[:count])
    operands = list(zip(values, context.avals_in))
    return names, operands[:count], operands[count : count + passed], operands[count + passed :]


def _start_on_cpu(
    context: mlir.LoweringRuleContext, *values: Any, exchanges: Exchanges, kept: int, passed: int
) -> list[Any]:
    if not kept:
        raise BytePSError("a program that was traced for a GPU is compiled for the CPU")
    names, sent, further, after = _declared(context, values, exchanges, passed)
    block = lowering.program_of(context).block(context)
    group = list(range(len(names)))
    begun, order, _room = lowering.begin(
        context, exchanges, names, group, sent, [], block, after, further
    )
    return [value for value, _aval in [*begun, *order[1:], block.run]]


def _wait_on_cpu(
    context: mlir.LoweringRuleContext, *values: Any, exchanges: Exchanges, **_: Any
) -> list[Any]:
    *sums, handle = context.avals_out
    attributes = exchanges.attributes(exchanges.names, range(len(sums)))
    operands = list(zip(values, context.avals_in))
    totals = emit(context, custom_calls.DONE, operands, sums, None, attributes)
    return [*totals, *emit(context, custom_calls.BARRIER, list(zip(totals, sums)), [handle])]


def _start_on_gpu(
    context: mlir.LoweringRuleContext, *values: Any, exchanges: Exchanges, kept: int, passed: int
) -> list[Any]:
    if kept:
        raise BytePSError("a program that was traced for the CPU is compiled for a GPU")
    names, sent, further, after = _declared(context, values, exchanges, passed)
    count = len(names)
    if not lowering.can_hold_back(context, [aval for _, aval in further]):
        further = []
    number, *passed_on = emit(
        context,
        custom_calls.START_DETACHED,
        [*sent, *further, *after],
        [NUMBER, *(aval for _, aval in further)],
        {count + place: 1 + place for place in range(len(further))},
        exchanges.attributes(names, range(count)),
    )
    return [*(passed_on or values[count : count + passed]), number]


def _wait_on_gpu(
    context: mlir.LoweringRuleContext, *values: Any, exchanges: Exchanges, **_: Any
) -> list[Any]:
    sums = len(context.avals_out) - 1
    run, *operands = zip(values, context.avals_in)
    attributes = exchanges.attributes(exchanges.names, range(sums))
    after = operands[sums:]
    return emit(context, custom_calls.WAIT, [run, *after], context.avals_out, None, attributes)


#: By JAX's name of a platform: the rule of what starts exchanges that a later program ends.
START_RULES = {"cpu": _start_on_cpu, "cuda": _start_on_gpu}
#: The same of what ends one.
WAIT_RULES = {"cpu": _wait_on_cpu, "cuda": _wait_on_gpu}
