"""What a worker goes back to when another one is lost, and gives to those that are new."""

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tf_byteps import runtime
from tf_byteps.exchange import host
from tf_byteps.exchange.objects import broadcast_object


class HostsUpdatedInterrupt(Exception):
    """The workers are about to change; `run` catches it on all of them at the same commit."""


class State:
    """What all states have in common. A subclass says how to `save`, `restore` and `sync`.

    Example: see `KerasState`.
    """

    if TYPE_CHECKING:  # the values are attributes

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def __init__(self) -> None:
        self._reset_callbacks = []

    @property
    def goes_back(self) -> bool:
        """Whether `restore` goes back to the last commit."""
        return True

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Has functions called on each worker that stays, when the workers have changed.

        `tf_byteps.size()` is the new number then, and what the functions change on rank 0 reaches
        all workers, new ones too, if it is part of the state.

        Args:
            callbacks: a list of functions without arguments.

        Example:

        >>> def scale():
        ...     state.optimizer.learning_rate = 0.01 * tf_byteps.size()
        >>> state.register_reset_callbacks([scale])
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Called by `run` when the workers have changed, before `sync`."""
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Keeps the state as it is now, in memory, and lets the workers change if they are to.

        A collective: all workers call it at the same step. It copies all of the state: once every
        some steps is enough, as the steps since the last commit are done again after a loss.

        Raises:
            HostsUpdatedInterrupt: on all workers, if some are to come or to leave.
        """
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Lets the workers change if they are to, without a commit. A collective.

        Raises:
            HostsUpdatedInterrupt: see `commit`.
        """
        if not runtime.config().elastic:
            return
        reason = runtime.coming_change()
        if runtime.size() > 1:
            if any_worker("elastic/change", bool(reason)) and not reason:
                reason = "another worker has heard that the workers are about to change"
        if reason:
            raise HostsUpdatedInterrupt(reason)

    def save(self) -> None:
        """Keeps the state as it is now, in memory. Communicates with nobody."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to what was saved last. Communicates with nobody."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives all workers rank 0's state, and saves it. A collective, called by `run`."""
        raise NotImplementedError


class ObjectState(State):
    """Python values that belong to a training: they are attributes of this object.

    Args:
        **values: names and first values, of the kinds that `broadcast_object` sends.

    Raises:
        ValueError: a value has the name of something that a state has already.

    Example:

    >>> state = tf_byteps.elastic.ObjectState(epoch=0, best=None)
    >>> state.epoch += 1
    >>> state.commit()
    """

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self._names = sorted(values)
        for name, value in values.items():
            if hasattr(self, name):
                raise ValueError(f"a state cannot have a value {name!r}: it is a name of its own")
            setattr(self, name, value)
        self._saved: dict[str, Any] = {}
        self.save()

    def save(self) -> None:
        """See `State.save`."""
        self._saved = copy.deepcopy(self._values())

    def restore(self) -> None:
        """See `State.restore`."""
        self._set(copy.deepcopy(self._saved))

    def sync(self) -> None:
        """See `State.sync`."""
        if runtime.size() > 1:
            self._set(broadcast_object(self._values(), 0, name="elastic/values"))
        self.save()

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._names}

    def _set(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)


def any_worker(name: str, wants: bool) -> bool:
    """Whether some worker wants something. A collective.

    Args:
        name: of the exchange, equal on all workers.
        wants: whether this one does.
    """
    (wanted,) = host.exchange_all([np.array([wants], np.int32)], [name], kind="max")
    return bool(wanted[0])
