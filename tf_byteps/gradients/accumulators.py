"""Averages of what TensorFlow's optimizers accumulate: see `accumulating`."""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from tf_byteps.gradients import accumulating
from tf_byteps.ops import Average, push_pull
from tf_byteps.types import Optimizer

# Optimizer -> a function that averages, and the `tf.Variable`s that it averages.
_functions = weakref.WeakKeyDictionary()


def average(
    optimizers: Iterable[Any], leaves_out: Callable[[Any], bool] = lambda variable: False
) -> None:
    """Sets what optimizers have accumulated to the average over all workers.

    Args:
        optimizers: see `accumulating.average`.
        leaves_out: see `accumulating.average`.
    """
    accumulating.average(optimizers, _average, leaves_out)


def _average(optimizer: Optimizer, named: list[tuple[str, Any]]) -> None:
    named = [(name, accumulator.value) for name, accumulator in named]
    variables = [variable for _, variable in named]
    function, known = _functions.get(optimizer, (None, []))
    if [id(variable) for variable in variables] != [id(variable) for variable in known]:
        function = _averaging(named)
        _functions[optimizer] = function, variables
    function()


def _averaging(named: list[tuple[str, Any]]) -> Callable[[], Any]:
    def exchange() -> None:
        for name, variable in named:
            variable.assign(push_pull(variable, op=Average, name=name))

    with tf.init_scope():
        return tf.function(exchange, autograph=False).get_concrete_function()
