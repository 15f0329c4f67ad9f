"""The scheduler's side of rendezvous."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import time
import typing
from collections.abc import Callable, Sequence
from typing import Any

from tf_byteps.errors import RendezvousError, StartInterruptedError
from tf_byteps.rendezvous import messages
from tf_byteps.rendezvous.host import host_id, listening_address
from tf_byteps.rendezvous.participant import PlaceTaken, Refusal
from tf_byteps.rendezvous.relay import Relay
from tf_byteps.rendezvous.roster import Roster
from tf_byteps.rendezvous.router import Router
from tf_byteps.rendezvous.secret import job_secret, warn_of_open_ports
from tf_byteps.rendezvous.server_returns import Readmit, ServerReturns

if typing.TYPE_CHECKING:
    from tf_byteps.config import Config
    from tf_byteps.rendezvous.messages import Book, Join
    from tf_byteps.rendezvous.participant import Participant

POLL_SECONDS = 0.2
_MAX_NAMED = 16  # of those that have not started
# Messages older than a pause of this process are read within this time after it.
_QUEUED_SECONDS = 0.2

_logger = logging.getLogger("tf_byteps")


class Scheduler:
    """Collects the processes of a job, gives them ranks and hands out the address book.

    Nothing here knows the engine: the caller hands in how a coordinator is started. One thread uses
    an object; only `stop` may be called from another one, or from a signal handler.

    Args:
        config: the `Config` of the process that runs it.
        start_coordinator: called with the `Book` when all are there; starts whoever watches over
            the running job and returns its `Address`.

    Raises:
        RendezvousError: the address cannot be used.
    """

    def __init__(
        self, config: Config, start_coordinator: Callable[[messages.Book], messages.Address]
    ) -> None:
        self._config = config
        self._start_coordinator = start_coordinator
        self._stopping = False
        self._started = False
        self._late_joins = {}  # participant: when it first asked
        self._book: messages.Book | None = None
        self._returns: ServerReturns | None = None  # in a running job
        self._roster = self._new_roster()
        # Called once, when the first worker has joined, if it is set.
        self.on_worker: Callable[[], None] | None = None
        self._has_warned = False
        self.relay: Relay | None = None
        self._not_ready = {}  # of the stage that runs: participants by their name
        self._next_look = 0.0  # for silent ones
        self._secret = job_secret(config)
        self._router = self._new_router(self._secret)

    @property
    def address(self) -> messages.Address:
        """Where processes join."""
        return self._router.address

    @property
    def joins(self) -> list[messages.Join]:
        """What those who take part, or want to, have said. For other threads, too."""
        return [participant.join for participant in list(self._roster.participants.values())]

    def _new_router(self, secret: str | None) -> Router:
        return Router(self._config, secret)

    def _new_roster(self) -> Roster:
        return Roster(**self._roster_settings())

    def _roster_settings(self) -> dict[str, Any]:
        return {
            "job_id": self._config.job_id,
            "num_workers": _known_size(self._config),
            "num_servers": self._config.num_servers,
            "options": self._config.stated_values(),
            "defaults": self._config.shared_values(),
        }

    def run(self, worker_timeout: float | None = None) -> messages.Book:
        """Serves until all workers have the address book.

        Args:
            worker_timeout: seconds until the first worker must have come. Default: no such limit.

        Returns:
            The `Book`.

        Raises:
            StartInterruptedError: one vanished while the job began. The others have been told.
            RendezvousError: not all came in time, or `stop` was called. They have been told, too.
        """
        try:
            self._collect(worker_timeout)
            _logger.info("%s", self._roster.progress())
            book = self._roster.build_book()
            book = dataclasses.replace(
                book,
                coordinator_endpoint=self._start_coordinator(book),
                relay_endpoint=self._open_relay(book),
            )
            self._book = book
            longest_pause = self._config.heartbeat_timeout / 2
            self._returns = ServerReturns(self._router, self._roster, book, longest_pause)
            self._warn_of_open_ports(book)
            self._started = True
            encoded = messages.EncodedBook(book)
            for stage in ("server", "worker"):
                self._run_stage(stage, encoded)
            return book
        except BaseException as error:  # whatever ends the scheduler, the others should learn it
            self._tell_of(error)
            raise

    def _open_relay(self, book: Book) -> messages.Address | None:
        """Where processes on other hosts wait for questions, if there are such and a secret."""
        if self._secret is None or not any(book.elsewhere(host_id(self._config)).values()):
            return None
        if self.relay is None:
            try:
                host = listening_address(self._config, self.address.host)
                self.relay = Relay(host, self._secret, self._config.listening_ports or [0])
            except RendezvousError as error:
                _logger.warning("%s. bpstop will not show the processes on other hosts", error)
                return None
        return messages.Address(self.address.host, self.relay.port)

    def ask_elsewhere(self, seconds: float) -> list[tuple[str, bytes | None]]:
        """Asks the processes on other hosts what they have to tell. For other threads, too.

        Args:
            seconds: how long to wait for them.

        Returns:
            For each that is there, which process it is, for people, and its answer, if it came in
            time.
        """
        book, relay = self._book, self.relay
        if book is None or relay is None:
            return []
        own_host = host_id(self._config)
        processes = {
            book.name_of(each.join.role, each.rank_in(each.join.role)): each.join.process
            for each in list(self._roster.participants.values())
            if each.is_done and each.join.host_id != own_host
        }
        answers = relay.ask(processes, seconds)
        return [(processes[name], answer) for name, answer in answers.items()]

    def _warn_of_open_ports(self, book: Book) -> None:
        """Once: the jobs of one scheduler have the same secret, or none."""
        if not (self._config.has_secret or self._has_warned):
            self._has_warned = True
            warn_of_open_ports(self.address, book)

    def _collect(self, worker_timeout: float | None) -> None:
        """Waits until all who belong to the job have joined."""
        if worker_timeout is not None:
            self._wait(self._roster.has_worker, worker_timeout, lambda: "no worker has joined")
        timeout = self._config.rendezvous_timeout
        self._wait(self._is_complete, timeout, self._roster.progress)

    def _is_complete(self) -> bool:
        if self.on_worker is not None and self._roster.has_worker():
            self.on_worker()
            self.on_worker = None
        return self._roster.complete()

    def answer_late_joins(
        self, is_failing: bool, lost_servers: Sequence[int] = (), readmit: Readmit | None = None
    ) -> None:
        """Answers processes that come while the job runs, or when it has failed. Returns at once.

        Args:
            is_failing: the job ends, and these may be its processes that come back for the next.
            lost_servers: the ranks of servers without which training goes on.
            readmit: called with the rank, the `Address` and the host id of a server that has been
                started in the place of one of these and is about to join the coordinator; may raise
                RendezvousError.
        """
        lost = list(lost_servers)
        while self._router.poll(0):
            route, message = self._router.receive()
            if not isinstance(message, messages.Join):
                continue
            if message.participant in self._roster.participants:
                continue
            returns = self._returns
            if returns is None or not returns.answer(route, message, lost, readmit):
                self._answer_late_join(route, message, is_failing)

    def _answer_late_join(self, route: bytes, join: Join, is_failing: bool = False) -> None:
        """It may stand in for one that is dead, which the job notices within this time."""
        now = time.monotonic()
        waited = now - self._late_joins.setdefault(join.participant, now)
        if is_failing or waited < self._config.heartbeat_timeout:
            text = "a job is running, or about to fail: waiting for its end"
            answer = messages.Progress(text, admitted=False)
        else:
            answer = messages.Refused("this job is running already")
        self._router.send(route, answer)

    def stop(self) -> None:
        """Makes `run` give up."""
        self._stopping = True

    def close(self) -> None:
        """Closes the socket. Idempotent."""
        self._router.close()

    def _wait(self, done: Callable[[], bool], timeout: float, explain: Callable[[], str]) -> None:
        """Serves messages until `done()`; `explain()` says what is missing if that takes longer."""
        deadline = time.monotonic() + timeout
        while not done():
            if self._stopping:
                raise RendezvousError("the scheduler was stopped before the job began")
            if time.monotonic() > deadline:
                raise RendezvousError(f"{explain()}, after {timeout:g} s")
            self._serve(POLL_SECONDS)
            self._look_for_silent()

    def _serve(self, seconds: float) -> None:
        """Handles the messages that come within that time; returns when no more are waiting."""
        end = time.monotonic() + seconds
        while self._router.poll(seconds):
            self._handle(*self._router.receive())
            seconds = 0
            if time.monotonic() > end:
                return

    def _look_for_silent(self) -> None:
        """From time to time. What waits is read first: this process may have been stopped."""
        if time.monotonic() >= self._next_look and not self._router.poll(0):
            self._drop_silent()
            self._next_look = time.monotonic() + POLL_SECONDS

    def _run_stage(self, stage: str, book: messages.EncodedBook) -> None:
        """Sends the book to all whose turn it is and waits until they have started.

        Args:
            stage: "server" or "worker".
            book: an `EncodedBook`.
        """

        def explain() -> str:
            late = ", ".join(map(str, itertools.islice(self._not_ready.values(), _MAX_NAMED)))
            more = len(self._not_ready) - _MAX_NAMED
            late += f" and {more} more" if more > 0 else ""
            return f"all had joined, but the {stage} of {late} did not start"

        members = self._stage_members(stage)
        self._not_ready = {p.join.participant: p for p in members}
        for participant in members:
            self._assign(participant, stage, book)
        self._wait(lambda: not self._not_ready, self._book.options["connect_timeout"], explain)

    def _stage_members(self, stage: str) -> list[Participant]:
        everybody = self._roster.participants.values()
        return [p for p in everybody if (p.hosts_server if stage == "server" else p.is_worker)]

    def _assign(self, participant: Participant, stage: str, book: messages.EncodedBook) -> None:
        rank = participant.rank_in(stage)
        if participant.ready:  # it has the book
            self._router.send(participant.route, messages.Assigned(stage, rank, None))
        else:
            self._router.send_encoded(participant.route, book.assign(stage, rank))

    def _tell_of(self, error: BaseException) -> None:
        reason = str(error) or "the scheduler was interrupted"
        message = messages.Failed(reason, isinstance(error, StartInterruptedError))
        for participant in self._roster.participants.values():
            self._router.send(participant.route, message)

    def _handle(self, route: bytes, message: messages.Message | None) -> None:
        if isinstance(message, messages.Join):
            self._handle_join(route, message)
        elif isinstance(message, (messages.Ready, messages.Leave)):
            participant = self._roster.participants.get(message.participant)
            if participant is None:
                return
            if isinstance(message, messages.Ready):
                participant.ready.add(message.stage)
                participant.last_seen = time.monotonic()
                self._not_ready.pop(message.participant, None)
            else:
                self._lose(participant, "gave up")

    def _handle_join(self, route: bytes, join: Join) -> Any:
        if self._started and join.participant not in self._roster.participants:
            return self._answer_late_join(route, join)
        known = len(self._roster.participants)
        try:
            participant = self._roster.admit(join, route, time.monotonic())
        except PlaceTaken as taken:
            asked = self._late_joins.setdefault(join.participant, time.monotonic())
            if all(holder.last_seen > asked + _QUEUED_SECONDS for holder in taken.holders):
                self._router.refuse(route, join, taken)
            else:  # who is dead will be missed, and its place is free then
                self._router.send(
                    route, messages.Progress(f"{taken} (if it still runs)", admitted=False)
                )
            return
        except Refusal as refusal:
            self._router.refuse(route, join, refusal)
            return
        if len(self._roster.participants) > known:
            _logger.info("%s has joined; %s", participant, self._roster.progress())
        self._router.send(route, messages.Progress(self._roster.progress(), admitted=True))

    def _drop_silent(self) -> None:
        now = time.monotonic()
        for participant in list(self._roster.participants.values()):
            silent = now - participant.last_seen
            if silent > self._config.heartbeat_timeout:
                self._lose(participant, f"has been silent for {silent:.0f} s")

    def _lose(self, participant: Participant, what: str) -> None:
        if participant.is_done:
            return  # it need not write any more: the coordinator notices what becomes of it
        if self._started:
            raise StartInterruptedError(f"{participant} {what} while the job began")
        # A server that stays for the next job is told to end when no worker comes any more.
        level = logging.WARNING if self._roster.has_worker() else logging.INFO
        _logger.log(level, "%s %s", participant, what)
        self._roster.remove(participant)


def _known_size(config: Config) -> int | None:
    """The number of workers if this process was told; DMLC variables alone do not tell a scheduler
    how many workers are on a machine."""
    reported = config.role == "worker" or config.global_size or config.is_set("local_size")
    return config.size if reported else None
