"""The engine's parts that a job needs besides workers: a server, and the scheduler.

Each runs in a process of its own (`tf_byteps.server`, `tf_byteps.scheduler`) or in a worker's
(`tf_byteps.runtime`). Nothing here needs TensorFlow or NumPy.
"""

from __future__ import annotations

import json
import logging
import typing
from collections.abc import Callable, Sequence
from typing import Any

from tf_byteps import _engine
from tf_byteps.engine_options import engine_options, job_description
from tf_byteps.errors import BytePSError, RendezvousError, StartInterruptedError
from tf_byteps.events import Events
from tf_byteps.files import path_for, write_whole
from tf_byteps.rendezvous.host import listening_address, own_address
from tf_byteps.rendezvous.membership import ElasticScheduler
from tf_byteps.rendezvous.messages import Address
from tf_byteps.rendezvous.roster import run_id
from tf_byteps.rendezvous.scheduler import Scheduler
from tf_byteps.timeline.files import Session
from tf_byteps.timeline.scheduler_recorder import SchedulerRecorder
from tf_byteps.timeline.server_recorder import ServerRecorder

if typing.TYPE_CHECKING:
    from tf_byteps.config import Config
    from tf_byteps.rendezvous.messages import Book, Join

WAIT_SECONDS = 0.2  # between looks at signals, while the engine waits

_logger = logging.getLogger("tf_byteps")


def _of_ports(config: Config) -> str:
    """The setting of the port that a server cannot have, to go after the error."""
    for name in ("server_port", "ports"):
        if getattr(config, name):
            return f"; {config.named(name)}"
    return ""


class SummationServer:
    """A summation server that listens, and belongs to a job once it is started.

    Args:
        config: the `Config` of its process.
        kept: where it finds rows of tables of an elastic job's epoch before, and leaves its own.

    Raises:
        BytePSError: its port cannot be used.
    """

    def __init__(self, config: Config, kept: _engine.KeptTables | None = None) -> None:
        self._config = config
        host = own_address(config)
        options = engine_options(config.shared_values(), config)
        try:
            self._server = _engine.Server(
                listening_address(config, host), config.server_port, options, kept
            )
        except _engine.EngineError as error:
            raise BytePSError(f"the server cannot start: {error}{_of_ports(config)}") from error
        self.address = Address(host, self._server.endpoint.port)
        self._rank = None
        self._job_id = None
        self.elsewhere: dict[str, int] = {}  # see `Book.elsewhere`
        self._recorder: ServerRecorder | None = None

    def start(self, book: Book, rank: int) -> None:
        """Joins the job as server `rank`."""
        try:
            self._server.start(job_description(book, self._config), rank)
        except _engine.EngineError as error:
            raise BytePSError(f"server {rank} cannot start: {error}") from error
        self.elsewhere = book.elsewhere(book.server_hosts[rank])
        self._rank, self._job_id = rank, book.job_id
        if self._config.timeline:
            where = self._config.timeline
            self._recorder = ServerRecorder(self._server, where, rank, Session.of(book))

    @property
    def failure(self) -> str:
        """Who was lost, in a sentence, or ""."""
        return self._server.failure

    def wait(self, seconds: float) -> bool:
        """True once the job is over; False after `seconds`."""
        return self._server.wait(seconds)

    def counters(self) -> dict[str, Any]:
        """What it has received and sent, as a dict; per tensor under "tensors"."""
        return {**self.totals(), "tensors": self._server.tensor_counters()}

    def totals(self) -> dict[str, Any]:
        """What `counters` has, without the list of tensors."""
        return {
            "rank": self._rank,
            "job_id": self._job_id,
            "failure": self._server.failure,
            **self._server.counters(),
            "arrival_lags": self._server.arrival_lags(),
        }

    def stop(self) -> None:
        """Writes the counters to the configured file and closes all connections."""
        if self._config.server_stats_file and self._rank is not None:
            path = path_for(self._config.server_stats_file, "server", self._rank)
            try:
                write_whole(path, [json.dumps(self.counters(), indent=1)])
            except OSError as error:
                _logger.error("BYTEPS_SERVER_STATS_FILE: %s cannot be written: %s", path, error)
        self._server.stop()
        if self._recorder is not None:
            self._recorder.stop()
            self._recorder = None


class JobScheduler:
    """The scheduler: rendezvous, then the engine's coordinator until the job is over.

    Args:
        config: the `Config` of its process.

    Raises:
        RendezvousError: its address cannot be used.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._coordinator = None
        self._rendezvous = self._new_rendezvous()
        self.events = Events()
        self._recorder = None
        if config.timeline:
            self._recorder = SchedulerRecorder(config.timeline, run_id(), self.events)

    def _new_rendezvous(self) -> Scheduler:
        return Scheduler(self._config, self._start_coordinator)

    @property
    def address(self) -> Address:
        """Where processes join."""
        return self._rendezvous.address

    @property
    def joins(self) -> list[Join]:
        """See `Scheduler.joins`."""
        return self._rendezvous.joins

    def run_rendezvous(
        self, worker_timeout: float | None = None, on_worker: Callable[[], None] | None = None
    ) -> Book:
        """Brings the job's processes together; returns the `Book`. See `Scheduler.run`.

        Args:
            worker_timeout: see `Scheduler.run`.
            on_worker: called when the first worker has joined.
        """
        self._rendezvous.on_worker = on_worker
        return self._rendezvous.run(worker_timeout)

    def ask_elsewhere(self, seconds: float) -> list[tuple[str, bytes | None]]:
        """See `Scheduler.ask_elsewhere`."""
        return self._rendezvous.ask_elsewhere(seconds)

    def close_rendezvous(self) -> None:
        """No process can join any more, and the port is free. Idempotent."""
        self._rendezvous.close()

    def answer_late_joins(self, come_again: bool = False) -> None:
        """Answers processes that come too late, and lets lost servers come back.

        Needed only while the port is open.

        Args:
            come_again: they may be workers that have left, and wait for the next job.
        """
        wait = come_again or bool(self.failure)
        self._rendezvous.answer_late_joins(wait, self.lost_servers, self._readmit)

    def request_stop(self) -> None:
        """Makes `run_rendezvous` give up. For other threads and signal handlers."""
        self._rendezvous.stop()

    @property
    def lost_servers(self) -> list[int]:
        """Ranks of the servers that are lost while training goes on."""
        return self._coordinator.lost_servers if self._coordinator else []

    @property
    def failure(self) -> str:
        """Who was lost, in a sentence, or ""."""
        return self._coordinator.failure if self._coordinator else ""

    def wait(self, seconds: float) -> bool:
        """True once the job is over; False after `seconds`."""
        return self._coordinator.wait(seconds)

    def stop(self) -> None:
        """Closes everything."""
        self.close_rendezvous()
        if self._rendezvous.relay is not None:
            self._rendezvous.relay.close()
        if self._coordinator is not None:
            self._coordinator.stop()
        self.end_timeline()
        self.events.stop()

    def end_timeline(self) -> None:
        """Writes what was recorded. Idempotent."""
        if self._recorder is not None:
            self._recorder.stop()

    def _readmit(self, rank: int, address: Address, host: str) -> None:
        try:
            self._coordinator.readmit(rank, _engine.Endpoint(address.host, address.port), host)
        except _engine.EngineError as error:
            raise RendezvousError(str(error)) from error

    def _start_coordinator(self, book: Book) -> Address:
        host = self._config.node_host or self.address.host
        options = engine_options(book.options, self._config)
        try:
            self._coordinator = _engine.Coordinator(
                listening_address(self._config, host), 0, options
            )
            self._coordinator.start(job_description(book, self._config))
        except _engine.EngineError as error:
            raise RendezvousError(f"the coordinator cannot start: {error}") from error
        return Address(host, self._coordinator.endpoint.port)


class ElasticJobScheduler(JobScheduler):
    """The scheduler of an elastic job, with a coordinator for each epoch.

    Args:
        config: see `JobScheduler`.
        orders: see `ElasticScheduler`.
    """

    def __init__(self, config: Config, orders: int | None = None) -> None:
        self._orders = orders
        super().__init__(config)

    def _new_rendezvous(self) -> ElasticScheduler:
        self._elastic = ElasticScheduler(self._config, self._start_coordinator, self._orders)
        return self._elastic

    def run_epoch(self, report: Callable[[Sequence[str]], None]) -> str:
        """One epoch, from rendezvous until its workers have changed.

        Args:
            report: called with the members, in rank order, when it has begun.

        Returns:
            "" or a sentence about who was lost.

        Raises:
            Dismissed: the job is over.
            RendezvousError: there are not enough workers, or they have changed too often.
        """
        try:
            self.run_rendezvous()
        except StartInterruptedError as error:
            if self._coordinator is not None:  # who has begun waits for who is lost
                self._coordinator.stop()
            return str(error)
        report(self._elastic.members)
        while not (self.failure or self.wait(0)):
            self._elastic.attend()
            vanished = self._elastic.vanished()
            if vanished:
                self._coordinator.stop()  # the others wait for it, and learn it so
                return vanished
        return self.failure

    def _start_coordinator(self, book: Book) -> Address:
        if self._coordinator is not None:  # who was in the last epoch has left it
            self._coordinator.stop()
        return super()._start_coordinator(book)
