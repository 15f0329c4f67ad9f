"""How exchanges that outlast a program become custom calls: the rules of `detached`."""

from typing import Any

from jax.interpreters import mlir

from tf_byteps.errors import BytePSError
from tf_byteps.jax import custom_calls, lowering
from tf_byteps.jax.custom_calls import NUMBER, emit
from tf_byteps.jax.exchanges import Exchanges


def _start_on_cpu(
    context: mlir.LoweringRuleContext, *values: Any, exchanges: Exchanges, kept: int, passed: int
) -> list[Any]:
    if not kept:
        raise BytePSError("a program that was traced for a GPU is compiled for the CPU")
    lowering.check_one_device(context)
    program = lowering.program_of(context)
    names, block = program.names(exchanges), program.block(context)
    operands = list(zip(values, context.avals_in))
    count = len(names)
    lowering.declare(exchanges, names, context.avals_in[:count])
    further, after = operands[count : count + passed], operands[count + passed :]
    begun, order, _room = lowering.begin(
        context, exchanges, names, list(range(count)), operands, [], block, after, further
    )
    return [value for value, _aval in [*begun, *order[1:], block.run]]


def _wait_on_cpu(
    context: mlir.LoweringRuleContext, *values: Any, exchanges: Exchanges, **_: Any
) -> list[Any]:
    return _waited(context, custom_calls.DONE, list(zip(values, context.avals_in)), exchanges)


def _start_on_gpu(
    context: mlir.LoweringRuleContext, *values: Any, exchanges: Exchanges, kept: int, passed: int
) -> list[Any]:
    if kept:
        raise BytePSError("a program that was traced for the CPU is compiled for a GPU")
    lowering.check_one_device(context)
    names = lowering.program_of(context).names(exchanges)
    operands = list(zip(values, context.avals_in))
    count = len(names)
    lowering.declare(exchanges, names, context.avals_in[:count])
    further, after = operands[count : count + passed], operands[count + passed :]
    if not lowering.can_hold_back(context, [aval for _, aval in further]):
        further = []
    number, *passed_on = emit(
        context,
        custom_calls.START_DETACHED,
        [*operands[:count], *further, *after],
        [NUMBER, *(aval for _, aval in further)],
        {count + place: 1 + place for place in range(len(further))},
        exchanges.attributes(names, range(count)),
    )
    return [*(passed_on or values[count : count + passed]), number]


def _wait_on_gpu(
    context: mlir.LoweringRuleContext, *values: Any, exchanges: Exchanges, **_: Any
) -> list[Any]:
    run, _kept, *after = zip(values, context.avals_in)
    return _waited(context, custom_calls.WAIT, [run, *after], exchanges)


def _waited(
    context: mlir.LoweringRuleContext, call: str, operands: list[Any], exchanges: Exchanges
) -> list[Any]:
    result, handle = context.avals_out
    attributes = exchanges.attributes(exchanges.names, [0])
    (total,) = emit(context, call, operands, [result], None, attributes)
    (ended,) = emit(context, custom_calls.BARRIER, [(total, result)], [handle])
    return [total, ended]


#: By JAX's name of a platform: the rule of what starts exchanges that a later program ends.
START_RULES = {"cpu": _start_on_cpu, "cuda": _start_on_gpu}
#: The same of what ends one.
WAIT_RULES = {"cpu": _wait_on_cpu, "cuda": _wait_on_gpu}
