"""TensorFlow, as elastic jobs need it, and the state of its variables."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_byteps.elastic import retracing
from tf_byteps.elastic.interface import Rejoining, VariableFramework
from tf_byteps.elastic.quorum_fits import QuorumFit
from tf_byteps.elastic.variables import VariablesState
from tf_byteps.strategy import membership
from tf_byteps.strategy.step import local_steps
from tf_byteps.tables import elastic_tables
from tf_byteps.training import initial_values
from tf_byteps.training.variables import tf_variable

_CODES = {
    tf.errors.CANCELLED: "CANCELLED",
    tf.errors.FAILED_PRECONDITION: "FAILED_PRECONDITION",
    tf.errors.UNAVAILABLE: "UNAVAILABLE",
}


class TensorFlow(VariableFramework):
    """TensorFlow's part of an elastic job."""

    def code_of(self, error: Exception) -> str:
        if not isinstance(error, tf.errors.OpError):
            return ""
        if elastic_tables.has_lost():
            return "UNAVAILABLE"
        code = error.error_code  # pyright: ignore[reportAttributeAccessIssue]
        return _CODES.get(code, "UNKNOWN")

    def lost(self, sentence: str) -> Exception:
        return tf.errors.UnavailableError(None, None, sentence)

    def begin_epoch(self, addresses: Sequence[str], generation: int, is_first: bool) -> None:
        membership.begin_epoch(addresses, generation, is_first)

    def generation(self) -> int:
        return membership.generation()

    def forget_programs(self) -> None:
        retracing.next_epoch()

    def rejoining(self, model: Any) -> Rejoining | None:
        has_quorum = local_steps.has_quorum(local_steps.settings_of(model))
        return QuorumFit(model) if has_quorum else None

    def mark_tables(self) -> None:
        elastic_tables.mark()

    def commit_tables(self) -> None:
        elastic_tables.commit()

    def restore_tables(self) -> None:
        elastic_tables.go_back()

    def agree_on_tables(self) -> Any:
        return elastic_tables.agree()

    def begin_tables(self, agreed: Any) -> None:
        elastic_tables.begin(agreed)

    def values(self, variables: Sequence[Any]) -> list[Any]:
        return [tf_variable(each).numpy() for each in variables]

    def synchronize(self, variables: Sequence[Any]) -> None:
        named = [(getattr(each, "path", each.name), tf_variable(each)) for each in variables]
        initial_values.synchronize("variables of the elastic state", named)


class TensorFlowState(VariablesState):
    """Variables and Python values.

    Args:
        variables: a list (or other structure) of `tf.Variable` or `keras.Variable`.
        **values: see `ObjectState`.

    Raises:
        ValueError: see `ObjectState`.

    Example:

    >>> state = tf_byteps.elastic.TensorFlowState([weights, bias], step=0)
    """

    def __init__(self, variables: Any, **values: Any) -> None:
        self._variables = tf.nest.flatten(variables)
        super().__init__(TensorFlow(), **values)

    def variables(self) -> list[Any]:
        """All variables of the state.

        Returns:
            A list.
        """
        return self._variables
