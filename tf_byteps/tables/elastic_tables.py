"""Tables on the servers of an elastic job (protocol rule 40).

Servers keep the rows when the workers change. With each commit a worker marks the point at which
the rows are, so that servers can bring them back to it: a worker goes back to its last commit with
weights and rows. Where the workers meet, worker 0 says at which point all go on, as its state says
it for the weights, and at which servers: those that have kept the rows.

Nothing is exchanged before the workers have met in the state's `sync`, since new ones make their
layers while others train.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tf_byteps import _engine, runtime
from tf_byteps.errors import BytePSError
from tf_byteps.exchange.object_gather import gather_objects
from tf_byteps.exchange.objects import broadcast_object
from tf_byteps.exchange.variable_lists import check_lists
from tf_byteps.tables import server_requests as requests
from tf_byteps.tables.server_requests import Point
from tf_byteps.tables.server_table import ServerTable

_lock = threading.Lock()
_tables: list[weakref.ref[ElasticTable]] = []  # also some that are gone
_loss: list[Callable[[], Any]] = []  # the last session in which a process was lost


class ElasticTable(ServerTable):
    """A table on the servers of an elastic job. See `ServerTable`.

    Making it is no collective: it is there once the workers have met.

    Attributes:
        point: where the rows are, or go back to when the workers meet; `None`: they are new.
        committed: where they were when the state was saved.
    """

    def _first_begin(self) -> None:
        self._session = lambda: None
        self.point: Point | None = None
        self.committed: Point | None = None
        self._is_back = False
        self._given: dict[int, np.ndarray[Any, Any]] = {}  # what to write to new rows, by slot
        with _lock:
            _tables[:] = [each for each in _tables if each() is not None]
            _tables.append(weakref.ref(self))

    def begin(self, homes: list[list[int]]) -> None:
        """Makes the table in this session, or goes on from `point`. A collective.

        Args:
            homes: the servers of the copies of each block.
        """
        if self.has_begun:
            self._check_session()
            return
        self._is_back = False
        self._begin(homes, self.point)
        for slot, values in self._given.items() if self.point is None else ():
            self.write(values, slot)

    @property
    def has_begun(self) -> bool:
        """Whether it is there in this session."""
        return self._session() is runtime.session("a table on the servers")

    def mark(self) -> None:
        """Has the servers keep the rows as they are now, to go back to. No collective."""
        with self.mutex:
            least = (self.committed or Point(0, tuple(self._made))).numbers

            def request(block: int) -> np.ndarray[Any, Any]:
                number = np.array([least[block]], np.uint64)
                return self._request(requests.MARK, 0, block, np.empty(0, np.int64), number)

            failed: list[Exception] = []
            for handles in self._start_on_all(request):
                outcomes = [requests.error_of(handle) for handle in handles]
                errors = [error for error in outcomes if error is not None]
                failed += errors if len(errors) == len(handles) else []
            self._raise_first(failed)
            self.point = Point(runtime.epoch(), tuple(self._made))

    def commit(self) -> None:
        """Notes that the state has been saved, with the rows as they are at `point`."""
        self.committed = self.point
        if self.committed is not None:
            self._given = {}

    def go_back(self) -> None:
        """Notes that the rows are to be those of the last commit, once the workers have met."""
        self.point, self._is_back = self.committed, True

    def write(self, values: np.ndarray[Any, Any] | None, slot: int = 0) -> None:
        """See `ServerTable`. Before the workers meet for the first time the values are kept."""
        if self._session() is not None or self.point is not None:
            super().write(values, slot)
        elif values is not None:
            self._given[slot] = np.array(values, self._dtype)

    def _check_session(self) -> None:
        if not self.has_begun:
            raise BytePSError(
                f"the rows of the table {self.name!r} are on the servers of an elastic job, whose "
                "workers have not met: use them in a function that tf_byteps.elastic.run runs, "
                "with a KerasState or a TensorFlowState"
            )
        if self._is_back:
            raise BytePSError(
                f"the state has gone back to its last commit, but not the table {self.name!r} on "
                "the servers: that happens where the workers meet; leave restore() to "
                "tf_byteps.elastic.run"
            )

    def _lost(self, error: Exception) -> Exception:
        """The workers meet, and find out what servers have kept."""
        _loss[:] = [self._session]
        return error


def _alive() -> list[ElasticTable]:
    with _lock:
        found = [each() for each in _tables]
    return [table for table in found if table is not None]


def has_lost() -> bool:
    """Whether a change or a lookup has failed in this session because a process is lost.

    TensorFlow makes another error of it, and the engine may hear of the loss only later.
    """
    lost_in = [session() for session in _loss]
    return runtime.is_initialized() and runtime.session("tables on the servers") in lost_in


def mark() -> None:
    """Marks the points at which all tables are. No collective.

    Raises:
        EngineError: a process is lost. Points that were committed stay.
    """
    for table in _alive():
        if table.has_begun:
            table.mark()


def commit() -> None:
    """Notes that the state has been saved where `mark` was called last."""
    for table in _alive():
        table.commit()


def go_back() -> None:
    """Notes that the state goes back to where `commit` was called last."""
    for table in _alive():
        table.go_back()


def agree() -> dict[str, list[list[int]]]:
    """Has all workers go on from worker 0's points, as they do from its state. A collective.

    Returns:
        For each table's name the servers of the copies of each block: what `begin` takes.

    Raises:
        ValueError: the workers have other tables.
        BytePSError: rows have been lost with their servers.
    """
    if not runtime.config().elastic:
        return {}
    gc.collect()  # models refer to themselves, and are freed on some workers earlier than on others
    tables = {table.name: table for table in _alive()}
    if runtime.size() > 1:
        check_lists("tables on the servers", gather_objects("elastic/tables", list(tables)))
    if not tables:
        return {}
    plan = _plan(tables.values()) if runtime.rank() == 0 else None
    if runtime.size() > 1:
        plan = broadcast_object(plan, 0, name="elastic/places of tables")
    assert plan is not None
    if isinstance(plan, str):
        raise BytePSError(plan)
    for name, table in tables.items():
        point = plan[name]["point"]
        table.point = None if point is None else Point(point[0], tuple(point[1]))
    return {name: plan[name]["homes"] for name in tables}


def begin(homes: dict[str, list[list[int]]]) -> None:
    """Makes all tables, or goes on with them where they are to go on. A collective.

    Args:
        homes: what `agree` has returned.

    Raises:
        EngineError: a process is lost.
    """
    tables = {table.name: table for table in _alive()}
    for name in sorted(homes):
        tables[name].begin(homes[name])
    if _tables and runtime.rank() == 0:  # what else servers have kept nobody needs
        for server in range(runtime.session("tables on the servers").num_servers):
            _ask(server, requests.DROP)
    mark()
    commit()


def _plan(tables: Iterable[ElasticTable]) -> Any:
    """Of each table from where it goes on, and on which servers; or what has been lost."""
    servers = runtime.session("tables on the servers").num_servers
    kept = dict(requests.kept(_ask(server, requests.KEPT)) for server in range(servers))
    plan: dict[str, Any] = {}
    for table in tables:
        point, homes = table.point, table.homes()
        for block in range(table.blocks) if point is not None and not table.has_begun else ():
            has = [
                server
                for server, blocks in kept.items()
                if point.of(block) in blocks.get((table.name, block), ())
            ]
            if not has:
                return (
                    f"the table {table.name!r} has lost rows: no server has block {block} as it "
                    f"was after {point.numbers[block]} changes in epoch {point.epoch}: servers "
                    "were lost, too, or workers that are gone had committed without this one; "
                    "start the job again, and load the last checkpoint"
                )
            others = [home % servers for home in homes[block]]
            homes[block] = list(dict.fromkeys([*has, *others]))[: len(homes[block])]
        plan[table.name] = {
            "point": None if point is None else [point.epoch, list(point.numbers)],
            "homes": homes,
        }
    return plan


def _ask(server: int, kind: int) -> bytes:
    """What one of the servers answers to a request that is about no table of its own."""
    request = np.frombuffer(requests.head(kind, 0, 0, 0, 0.0), np.uint8)
    handle = _engine.exchange(request, name=f"tables of server {server}", kind="table", home=server)
    return handle.wait(requests.FOREVER).tobytes()
