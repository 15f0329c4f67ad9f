"""A branch of the program's own around an update: all workers must take the same one.

    tf.cond(tf.math.is_finite(loss), update, leave_out)

In one process the loss is that of all rows. Here each worker has that of its own, and the workers
that update would wait for those that do not. So a step in which an update lies in a branch is
traced again, with the branch's condition agreed upon by all workers:

* what is so for all rows together if it is so for each piece ("all are finite") must be so for all,
* what is so if it is so for any piece ("one is not a number") for any;
* of any other condition that depends on a worker's own numbers it is not known what one process
  would find. If the workers differ in it, the step fails on all of them, with the place and a cure.

A condition that all have in common, such as one of a counter, costs nothing. Any other one costs an
exchange of two integers in a step.

The same holds for a loop of the program's own with an update in it (`while loss > 0.1`): its
condition is agreed upon before each iteration.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any

import tensorflow as tf

from tf_byteps.gradients.replica import in_our_replica
from tf_byteps.ops import Min, compiling, names, push_pull
from tf_byteps.strategy.step import origins
from tf_byteps.strategy.step.scaling import trace_again

_logger = logging.getLogger("tf_byteps")
_local = threading.local()
_reported: set[str] = set()  # places

_FINITE = frozenset({"IsFinite", "All", "LogicalAnd"})
_ANY = frozenset({"IsNan", "IsInf", "Any", "LogicalOr"})
# What passes on the answer of one of these.
_FORMS = frozenset({"Identity", "Pack", "Reshape", "Squeeze", "ExpandDims", "Cast", "LogicalNot"})
_ADVICE = (
    "decide alike on all workers, by what they have in common: "
    'tf.distribute.get_replica_context().all_reduce("sum", tf.cast(mine, tf.int32)) > 0, for '
    "example"
)


class Branches:
    """The branches of one kind of step around its updates, in all its traces."""

    def __init__(self) -> None:
        self._places: set[str] = set()
        self._without_counters: set[str] = set()  # of loops

    def updates(self) -> None:
        """Notes that the step updates weights here.

        Raises:
            TraceAgain: it does so in a branch for the first time.
        """
        new = set(_stack()) - self._places
        if new:
            self._places |= new
            trace_again()

    def agreed(self, condition: tf.Tensor, place: str) -> Any:
        """The condition of a branch, the same on all workers if an update lies in it."""
        if place not in self._places or not tf.is_symbolic_tensor(condition):
            return condition
        return condition if _is_common(condition) else _agreed(condition, place, "branch")

    def agreed_of_loop(
        self, condition: tf.Tensor, place: str, values: object, begins: object
    ) -> Any:
        """The same for the condition of a loop, of its variables' values and first values."""
        if place not in self._places or not tf.is_symbolic_tensor(condition):
            return condition
        counters = set() if place in self._without_counters else set(_counters(values, begins))
        is_common = _is_common(condition, counters)
        return condition if is_common else _agreed(condition, place, "loop")

    def look_at_counters(self, place: str, values: object, begins: object, results: object) -> None:
        """Finds out whether the body of a loop computes its counters from a worker's own numbers.

        Raises:
            TraceAgain: it does.
        """
        if place not in self._places or place in self._without_counters:
            return
        counters = _counters(values, begins)
        after = tf.nest.flatten(results, expand_composites=True)
        if not all(_is_common(after[i], set(counters)) for i in counters.values()):
            self._without_counters.add(place)
            trace_again()


@contextlib.contextmanager
def working_on(branches: Branches | None) -> Iterator[None]:
    """Around the trace of a Keras step; of `None` if no code of the program's is in it."""
    before = _current(), _stack(), _is_in_step()
    _local.branches, _local.stack, _local.is_in_step = branches, [], True
    try:
        yield
    finally:
        _local.branches, _local.stack, _local.is_in_step = before


def cond(original: Callable[..., Any], pred: tf.Tensor, *args: object, **kwargs: object) -> Any:
    """`tf.cond`, also what AutoGraph makes of an `if`."""
    branches = _current()
    is_of_program = branches is not None or (not _is_in_step() and in_our_replica())
    if tf.executing_eagerly() or not is_of_program:
        return original(pred, *args, **kwargs)
    place = names.call_site()
    if branches is not None:
        pred = branches.agreed(pred, place)
    with _within(place if branches is not None else (place, lambda: _is_common(pred))):
        return original(pred, *args, **kwargs)


def while_loop(
    original: Callable[..., Any],
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: object,
    *args: object,
    **kwargs: object,
) -> Any:
    """`tf.while_loop`, also what AutoGraph makes of a `while` or of a `for` over a range."""
    branches = _current()
    if tf.executing_eagerly() or not (branches or (not _is_in_step() and in_our_replica())):
        return original(cond, body, loop_vars, *args, **kwargs)
    place = names.call_site()
    is_common = [True]

    def condition_of(*values: object) -> Any:
        condition = cond(*values)
        if branches is not None:
            return branches.agreed_of_loop(condition, place, values, loop_vars)
        is_common[0] = _is_common(condition, set(_counters(values, loop_vars)))
        return condition

    def body_of(*values: object) -> Any:
        results = body(*values)
        if branches is not None:
            branches.look_at_counters(place, values, loop_vars, results)
        return results

    with _within(place if branches is not None else (place, lambda: is_common[0])):
        return original(condition_of, body_of, loop_vars, *args, **kwargs)


def warn_of_update() -> None:
    """Warns, in a loop of the program's own, of an update in a branch that workers may not share.

    To be called where `strategy.run` updates weights outside of a Keras step.
    """
    for place, is_common in _stack():
        if place in _reported or is_common():
            continue
        _reported.add(place)
        _logger.warning(
            "an update lies in a branch or loop (%s): if a worker takes another way than the "
            "others, they wait for it until the job fails. If the condition is about a worker's "
            "own rows, %s",
            place,
            _ADVICE,
        )


def _current() -> Branches | None:
    return getattr(_local, "branches", None)


def _is_in_step() -> bool:
    return getattr(_local, "is_in_step", False)


def _stack() -> list[Any]:
    if not hasattr(_local, "stack"):
        _local.stack = []
    return _local.stack


@contextlib.contextmanager
def _within(entry: object) -> Iterator[None]:
    stack = _stack()
    stack.append(entry)
    try:
        yield
    finally:
        stack.pop()


def _counters(values: object, begins: object) -> dict[Any, int]:
    """Reference -> position: a loop's integers that all workers begin with alike."""
    flat = [tf.nest.flatten(each, expand_composites=True) for each in (values, begins)]
    return {
        value.ref(): position
        for position, (value, begin) in enumerate(zip(*flat))
        if tf.is_symbolic_tensor(value) and value.dtype.is_integer and _is_common(begin)
    }


def _is_common(condition: tf.Tensor, counters: Collection[Any] = ()) -> bool:
    """Whether all workers have the same: it comes from exchanges, constants and counters only."""
    results = origins.exchanged_behind([condition]) | set(counters)
    for tensor in origins.ancestors([condition], results):
        operation = tensor.op
        if tensor.ref() in results or operation.inputs or operation.type == "Const":
            if operation.type != "ReadVariableOp" or not tensor.dtype.is_floating:
                continue
            return False
        # What a variable is read from; a counter's number is an integer (see `variable_kinds`).
        if tensor.dtype != tf.resource:
            return False
    return True


def _agreed(condition: tf.Tensor, place: str, kind: str) -> tf.Tensor:
    mine = tf.cast(condition, tf.int32)
    least, most = tf.unstack(
        push_pull(tf.stack([mine, -mine]), op=Min, name=names.numbered(f"branch@{place}"))
    )
    in_all, in_any = tf.equal(least, 1), tf.equal(most, -1)
    combination = _combination(condition)
    if combination is not None:
        return in_all if combination == "all" else in_any
    message = f"the workers differ in the condition of a {kind} with an update ({place}): {_ADVICE}"
    if compiling.is_compiled():
        raise ValueError(
            f"an update lies in a {kind} ({place}) whose condition is about a worker's own rows, "
            f"and XLA compiles the step: {_ADVICE}"
        )
    with tf.control_dependencies([tf.debugging.Assert(tf.equal(in_all, in_any), [message])]):
        return tf.identity(in_all)


def _combination(condition: tf.Tensor) -> str | None:
    """ "all" or "any": how the answers of the workers' pieces become that of all rows."""
    is_negated, found = False, set()
    left = [(condition, is_negated)]
    while left:
        tensor, is_negated = left.pop()
        kind = tensor.op.type
        if kind in _FORMS:
            left += [(each, is_negated != (kind == "LogicalNot")) for each in tensor.op.inputs]
        elif kind in _FINITE or kind in _ANY:
            found.add("all" if (kind in _FINITE) != is_negated else "any")
            if kind not in ("IsFinite", "IsNan", "IsInf"):
                left += [(each, is_negated) for each in tensor.op.inputs if each.dtype == tf.bool]
        elif kind != "Const":
            return None
    return found.pop() if len(found) == 1 else None
