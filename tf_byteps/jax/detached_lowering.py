"""How exchanges that outlast a program become custom calls: the rules of `detached`."""

from typing import Any

from jax.interpreters import mlir

from tf_byteps.jax import custom_calls, lowering
from tf_byteps.jax.custom_calls import emit
from tf_byteps.jax.exchanges import Exchanges


def lower_start(
    context: mlir.LoweringRuleContext, *values: Any, exchanges: Exchanges, passed: int
) -> list[Any]:
    """The rule of what starts exchanges that a later program ends."""
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


def lower_wait(context: mlir.LoweringRuleContext, *values: Any, exchanges: Exchanges) -> list[Any]:
    """The rule of what ends an exchange that an earlier program has started."""
    operands = list(zip(values, context.avals_in))
    result, handle = context.avals_out
    attributes = exchanges.attributes(exchanges.names, [0])
    (total,) = emit(context, custom_calls.DONE, operands, [result], None, attributes)
    (ended,) = emit(context, custom_calls.BARRIER, [(total, result)], [handle])
    return [total, ended]
