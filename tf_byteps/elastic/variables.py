"""What the states of variables have in common."""

from typing import Any

from tf_byteps import _engine, runtime
from tf_byteps.elastic.interface import VariableFramework
from tf_byteps.elastic.states import HostsUpdatedInterrupt, ObjectState


class VariablesState(ObjectState):
    """Variables and Python values. A subclass says which variables.

    Args:
        framework: of the variables.
        **values: see `ObjectState`.

    Raises:
        ValueError: see `ObjectState`.
    """

    def __init__(self, framework: VariableFramework, **values: Any) -> None:
        self._framework = framework
        self._saved_variables: list[tuple[Any, Any]] = []
        super().__init__(**values)

    def variables(self) -> list[Any]:
        """All variables of the state.

        Returns:
            A list.
        """
        raise NotImplementedError

    def save(self) -> None:
        """See `State.save`.

        Raises:
            tf.errors.UnavailableError: on TensorFlow: a process is lost. The state that was saved
                last stays.
            ExchangeError: on JAX: the same.
        """
        variables = self.variables()
        saved = list(zip(variables, self._framework.values(variables), strict=True))
        # A compiled step on a GPU tells of a loss only after it has changed the variables. Reading
        # them has waited for the GPU, so that the engine knows by now.
        if failure := _engine.worker_failure():
            raise self._framework.lost(failure)
        self._framework.mark_tables()
        super().save()
        self._saved_variables = saved
        self._framework.commit_tables()

    def restore(self) -> None:
        """See `State.restore`."""
        super().restore()
        for variable, value in self._saved_variables:
            variable.assign(value)
        self._framework.restore_tables()

    def sync(self) -> None:
        """See `State.sync`."""
        if runtime.size() > 1:
            self._framework.synchronize(self.variables())
        agreed = self._framework.agree_on_tables()
        super().sync()
        self._framework.begin_tables(agreed)

    def check_host_updates(self) -> None:
        """See `State.check_host_updates`."""
        try:
            super().check_host_updates()
        except HostsUpdatedInterrupt:
            self._framework.mark_tables()
            raise
