"""What an elastic job needs of a framework: each has a class of its own."""

from collections.abc import Sequence
from typing import Any


class Framework:
    """A framework whose arrays or variables the workers of an elastic job train."""

    def code_of(self, error: Exception) -> str:
        """The engine's code of an error of the framework, such as "UNAVAILABLE".

        Args:
            error: what a training has raised.

        Returns:
            "UNKNOWN" if an exchange may be its cause, and it does not say so; "" if it is no error
            of the framework.
        """
        raise NotImplementedError

    def lost(self, sentence: str) -> Exception:
        """An error that says that a process is lost.

        Args:
            sentence: which one, and how.
        """
        raise NotImplementedError

    def begin_epoch(self, addresses: Sequence[str], generation: int, is_first: bool) -> None:
        """The workers have come together. Communicates with nobody.

        Args:
            addresses: of all workers, in rank order.
            generation: the highest that a worker has, see `generation`.
            is_first: whether no worker has trained before.
        """

    def generation(self) -> int:
        """How often data were distributed, for shuffles without a seed."""
        return 0

    def forget_programs(self) -> None:
        """What was traced or compiled for other workers is made anew when it is next called."""
        raise NotImplementedError


class Rejoining:
    """How a training goes on with other workers, in which nobody goes back to a commit."""

    def look(self) -> None:
        """Lets this worker meet the others if the workers change. Communicates with nobody.

        Raises:
            HostsUpdatedInterrupt: some are to come or to leave.
            Exception: what `VariableFramework.lost` gives: one is lost.
        """
        raise NotImplementedError

    def sync(self, state: Any) -> None:
        """Does what `State.sync` is for, on all workers. A collective.

        Args:
            state: the `KerasState`.
        """
        raise NotImplementedError


class VariableFramework(Framework):
    """A framework on which Keras runs."""

    def rejoining(self, model: Any) -> Rejoining | None:
        """How `fit` of a Keras model goes on when the workers change; `None`: from a commit."""

    def before_reading(self, model: Any) -> None:
        """The variables of a Keras model have their values when this returns."""

    def mark_tables(self) -> None:
        """Has servers keep the rows of tables as they are now, to go back to."""

    def commit_tables(self) -> None:
        """Goes back to those rows from now on. Communicates with nobody."""

    def restore_tables(self) -> None:
        """Goes back to them where the workers meet. Communicates with nobody."""

    def agree_on_tables(self) -> Any:
        """Has all workers go on with worker 0's rows of tables. A collective.

        Returns:
            What `begin_tables` needs to know.

        Raises:
            ValueError: on all workers, if they have other tables.
            BytePSError: on all workers, if rows are lost.
        """

    def begin_tables(self, agreed: Any) -> None:
        """Goes on with the rows of tables, and commits them. A collective.

        Args:
            agreed: what `agree_on_tables` has returned.
        """

    def values(self, variables: Sequence[Any]) -> list[Any]:
        """Copies of the values of variables, in host memory, when all steps have ended.

        Args:
            variables: of Keras, or the framework's own.

        Returns:
            A list of what `assign` of a variable takes.
        """
        raise NotImplementedError

    def synchronize(self, variables: Sequence[Any]) -> None:
        """Sets variables to worker 0's values. A collective.

        Args:
            variables: of Keras, or the framework's own.

        Raises:
            ValueError: on all workers, if their lists differ.
        """
        raise NotImplementedError
