"""Do the weights stay equal everywhere? A look at the end of each epoch.

Every worker makes the same updates from the same sums, unless the program makes one differ: a
learning rate from logs of one worker's own batches, weights assigned on one worker alone. Nothing
else would show it, for each worker's loss still falls.
"""

import logging
from typing import Any

import keras

from tf_byteps import logs, runtime
from tf_byteps.errors import BytePSError, on_all_workers
from tf_byteps.exchange.equality import difference
from tf_byteps.exchange.optimizers import optimizers_of
from tf_byteps.strategy import variable_kinds
from tf_byteps.strategy.fit import framework
from tf_byteps.tables import layout as layouts

_logger = logging.getLogger("tf_byteps")
_ADVICE = (
    "Since then the workers train different models. Change weights and the learning rate on all "
    "workers alike, by what is the same on all: the logs of an epoch are, those of a batch are "
    "this worker's own. What is to differ says so: variable.byteps_kind = 'own'. "
    "BYTEPS_CHECK_WEIGHTS=error makes this an error, off leaves it out"
)


def check(model: keras.Model, mode: str) -> None:
    """Compares what must be the same on all workers. A collective, unless it is off.

    Args:
        model: a `keras.Model` whose workers have all finished the same epoch.
        mode: "warning", "error" or "off", the same on all workers.

    Raises:
        BytePSError: on all workers, if a variable differs and the mode is "error".
    """
    if mode == "off" or runtime.size() == 1:
        return
    variables = common_variables(model)
    numbers = framework.current().fingerprints(variables)
    found = difference("weights", [variable.path for variable in variables], numbers)
    if found is None:
        return
    message = f"where an epoch ended, {found}. {_ADVICE}"
    if mode == "error":
        raise on_all_workers(BytePSError(message))
    if runtime.rank() == 0:
        _logger.warning("%s", message, extra=logs.event("weights_differ"))


def common_variables(model: keras.Model) -> list[Any]:
    """What must be the same on all workers where an epoch ends.

    Args:
        model: a `keras.Model`.

    Returns:
        A list of `keras.Variable`, each once: the model's and its optimizers'.
    """
    variables = variable_kinds.variables(model, *variable_kinds.COMMON)
    optimizers = optimizers_of(model)
    for optimizer in optimizers:
        variables += optimizer.variables
    own = {id(variable) for variable in framework.current().own_state(model, optimizers)}
    common = [each for each in variables if id(each) not in own and layouts.of(each) is None]
    return list({id(each): each for each in common}.values())
