"""Rendezvous of an elastic job, again and again: whoever lives then takes part (protocol rule 16).

Every change of the workers is a new address book under a new epoch. Those that were in the last one
keep their order, newcomers come behind them, so that rank 0 is always the one that has been there
longest. The scheduler knows who lives without asking anybody's Python: each worker holds a
connection to it from its first request to its end (see `member`), and ZeroMQ's own threads keep
that up.
"""

from __future__ import annotations

import logging
import os
import select
import time
import typing
from collections.abc import Callable, Sequence
from typing import Any

from tf_byteps import logs
from tf_byteps.errors import Dismissed, RendezvousError
from tf_byteps.rendezvous import messages
from tf_byteps.rendezvous.participant import Participant, PlaceTaken, Refusal, place_of
from tf_byteps.rendezvous.presence import MemberRouter, route_of
from tf_byteps.rendezvous.roster import Roster, have_joined
from tf_byteps.rendezvous.router import Router
from tf_byteps.rendezvous.scheduler import POLL_SECONDS, Scheduler

if typing.TYPE_CHECKING:
    from tf_byteps.config import Config
    from tf_byteps.rendezvous.messages import Join

# A job that is over answers servers that would join again for so long.
_FAREWELL_SECONDS = 1.0
_ASKS_AGAIN_SECONDS = 2.0  # so often, at least, does who still waits
# A worker that has the address book and is lost before it has connected is given up after this.
_VANISHED_SECONDS = 2.0

_logger = logging.getLogger("tf_byteps")


class ElasticRoster(Roster):
    """The participants of one epoch of an elastic job.

    Args:
        before: the members of the epoch before, in rank order.
        least: how many workers are needed.
        **settings: see `Roster`.
    """

    def __init__(self, before: Sequence[str], least: int, **settings: Any) -> None:
        super().__init__(**{**settings, "num_workers": None})
        self._before, self._least = before, least

    def progress(self) -> str:
        """See `Roster.progress`."""
        workers = f"{self._count['worker']} of at least {self._least}"
        return have_joined(workers, self._count["server"], self.num_servers)

    def _check_worker_place(self, join: Join) -> None:
        if join.member is None:
            raise Refusal(
                "this job is elastic, but it expects a fixed number of workers: set "
                "BYTEPS_MIN_WORKERS, as bpslaunch --min-np does"
            )
        other = self._holders.get(place_of(join))
        if other is not None:
            raise PlaceTaken(
                f"member {join.member!r} is {other.join.process}: give each worker its own "
                f"BYTEPS_MEMBER, or none",
                [other],
            )

    def in_order(self) -> list[Participant]:
        """The workers: those of the epoch before in their order, then newcomers, host by host."""
        place = {member: number for number, member in enumerate(self._before)}

        def order(worker: Participant) -> tuple:
            join = worker.join
            member = join.member or ""
            number = len(member), member  # a launcher counts
            return (place.get(member, len(place)), join.host_id, *number)

        return sorted(self.workers(), key=order)

    def _assign_ranks(self) -> None:
        for rank, worker in enumerate(self.in_order()):
            worker.rank = rank
        self.num_workers = len(self.workers())
        self._assign_server_ranks()


class ElasticScheduler(Scheduler):
    """A `Scheduler` whose `run` is called again whenever the workers have changed.

    Args:
        config: its `Config`, with `min_workers`.
        start_coordinator: see `Scheduler`.
        orders: a descriptor with what a launcher has to say, or None: lines "expect N", how many
            workers it has started, for the first epoch; "leave MEMBER", who is to go.
    """

    def __init__(
        self,
        config: Config,
        start_coordinator: Callable[[messages.Book], messages.Address],
        orders: int | None = None,
    ) -> None:
        self._members = []  # of the last epoch, in rank order
        self._done, self._leaving = set(), set()
        self._newcomers = {}  # member: when it last asked, while the job runs
        # Who has asked to take part while the last epoch was not over: by member, or participant.
        self._waiting: dict[str, tuple[float, bytes, Join]] = {}
        self._expected = config.size
        self._epochs = 0
        self._book: messages.Book | None = None
        self._announced = False
        self._orders, self._order_rest = orders, b""
        self._patient_until = self._began = 0.0
        super().__init__(config, start_coordinator)

    def _new_roster(self) -> Roster:
        least = self._config.min_workers or 1
        return ElasticRoster(self._members, least, **self._roster_settings())

    @property
    def _elastic_roster(self) -> ElasticRoster:
        assert isinstance(self._roster, ElasticRoster)
        return self._roster

    def _new_router(self, secret: str | None) -> Router:
        self._member_router = MemberRouter(self._config, secret)
        return self._member_router

    def run(self, worker_timeout: float | None = None) -> messages.Book:
        """Brings an epoch's processes together. See `Scheduler.run`.

        Raises:
            Dismissed: the job is over: a worker is done, and no other one of the last epoch is left
                that is not.
        """
        self._started = self._announced = False
        self._roster = self._new_roster()
        self._newcomers.clear()
        self._late_joins.clear()
        self._admit_waiting()
        self._book = super().run(worker_timeout)
        self._members = [worker.join.member or "" for worker in self._elastic_roster.in_order()]
        self._began = time.monotonic()
        return self._book

    @property
    def members(self) -> tuple[str, ...]:
        """The members of the last epoch, in rank order."""
        return tuple(self._members)

    def _admit_waiting(self) -> None:
        """They would ask again, but only after a while, in which all others would wait for them."""
        waiting, self._waiting = self._waiting, {}
        for asked, route, join in waiting.values():
            if time.monotonic() - asked < _ASKS_AGAIN_SECONDS:
                self._handle_join(route, join)

    def attend(self, seconds: float = POLL_SECONDS) -> None:
        """Serves those who come, and those who are told to go, while the job runs."""
        deadline = time.monotonic() + seconds
        while self._router.poll(max(0.0, deadline - time.monotonic())):
            self._handle(*self._router.receive())
        self._take_orders()
        self._announce_changes()

    def vanished(self) -> str:
        """A member that was lost before the engine could know it, in a sentence, or ""."""
        now = time.monotonic()
        if now - self._began > self._config.connect_timeout:
            return ""
        for member in self._members:
            if not self._member_router.is_there(member) and member not in self._done:
                if self._member_router.since(member) > _VANISHED_SECONDS:
                    return f"worker {member} was lost when the job had just begun"
        return ""

    # Who takes part.

    def _collect(self, worker_timeout: float | None) -> None:
        timeout = self._config.elastic_timeout
        self._patient_until = time.monotonic() + timeout
        self._wait(self._may_begin, timeout + 2 * POLL_SECONDS, self._explain)
        joined = self._joined()
        chosen = [worker for worker in self._elastic_roster.in_order() if worker in joined]
        chosen = chosen[: self._config.max_workers]
        for worker in self._roster.workers():
            if worker not in chosen:  # it asks again, and may come later
                self._roster.remove(worker)
        self._count_change([worker.join.member or "" for worker in chosen])

    def _count_change(self, members: Sequence[str]) -> None:
        self._epochs += 1
        limit = self._config.reset_limit
        if limit is not None and self._epochs - 1 > limit:
            raise RendezvousError(
                f"the workers of the job have changed more than {limit} times (--reset-limit, "
                f"BYTEPS_RESET_LIMIT)"
            )
        if self._epochs > 1:
            _logger.warning(
                "the job goes on with %s",
                _counted(members),
                extra=logs.event("workers_changed", workers=len(members)),
            )
        if self._members and not set(members) & set(self._members):
            _logger.warning("none of them was there before: what was not saved to files is lost")

    def _may_begin(self) -> bool:
        joined = self._joined()
        members = {worker.join.member for worker in joined}
        awaited = [
            member
            for member in self._members
            if member not in members | self._done | self._leaving
            and self._member_router.is_there(member)
        ]
        if self._done and not awaited and not members & set(self._members):
            raise Dismissed("the job has ended")
        if len(self._roster.server_processes()) < self._config.num_servers:
            return False
        if len(joined) < self._needed():
            return False
        if time.monotonic() > self._patient_until:
            return True
        started = self._epochs > 0 or len(joined) >= self._expected
        return started and not awaited

    def _needed(self) -> int:
        """Who is done counts: the others need not wait for anybody in its place."""
        return max(1, self._config.min_workers - len(self._done))

    def _joined(self) -> list[Participant]:
        """The workers that have asked to take part and live."""
        return [
            w for w in self._roster.workers() if self._member_router.is_there(w.join.member or "")
        ]

    def _explain(self) -> str:
        servers = len(self._roster.server_processes())
        workers = f"{len(self._joined())} of at least {self._needed()}"
        return (
            f"{have_joined(workers, servers, self._config.num_servers)} (--min-np, "
            f"BYTEPS_MIN_WORKERS; --elastic-timeout, BYTEPS_ELASTIC_TIMEOUT)"
        )

    # What they say.

    def _handle(self, route: bytes, message: messages.Message | None) -> None:
        if isinstance(message, messages.Done):
            if message.member in self._members:
                self._done.add(message.member)
        else:
            super()._handle(route, message)

    def _handle_join(self, route: bytes, join: Join) -> Any:
        if join.member in self._leaving:
            return self._router.send(route, messages.Dismissed("its host is no longer in use"))
        self._done.discard(join.member)  # it has left, and comes again
        super()._handle_join(route, join)

    def _answer_late_join(self, route: bytes, join: Join, is_failing: bool = False) -> None:
        if join.role == "worker" and join.member not in (None, *self._members):
            self._newcomers[join.member] = time.monotonic()
        self._waiting[join.member or join.participant] = time.monotonic(), route, join
        text = "the job runs: new workers are let in at its next commit"
        self._router.send(route, messages.Progress(text, admitted=False))

    def _drop_silent(self) -> None:
        self._take_orders()
        for participant in list(self._roster.participants.values()):
            member = participant.join.member
            if member is None or participant.is_done or self._member_router.is_there(member):
                continue
            if self._member_router.since(member) > 1.0:
                self._lose(participant, "has gone")
        super()._drop_silent()

    def _announce_changes(self) -> None:
        if self._announced or self._book is None:
            return
        now = time.monotonic()
        alive = [
            member
            for member, seen in self._newcomers.items()
            if now - seen < self._config.heartbeat_timeout and member not in self._leaving
        ]
        limit = self._config.max_workers
        may_grow = limit is None or len(self._members) < limit
        leaving = [member for member in self._members if member in self._leaving]
        reasons = []
        if alive and may_grow:
            reasons.append(f"{_counted(alive)} will join")
        if leaving:
            reasons.append(f"{_counted(leaving)} will leave")
        if not reasons:
            return
        self._announced = True
        text = "; ".join(reasons)
        _logger.warning("at the next commit %s", text, extra=logs.event("workers_change"))
        for member in self._members:
            self._router.send(route_of(member), messages.Changed(self._book.epoch, text))

    def _take_orders(self) -> None:
        while self._orders is not None and select.select([self._orders], [], [], 0)[0]:
            data = os.read(self._orders, 4096)
            if not data:
                self._orders = None
            *lines, self._order_rest = (self._order_rest + data).split(b"\n")
            for line in lines:
                verb, _, value = line.decode().partition(" ")
                if verb == "expect":
                    self._expected = int(value)
                elif verb == "leave":
                    self._leaving.add(value)

    def _tell_of(self, error: BaseException) -> None:
        if isinstance(error, Dismissed):
            self._say_farewell(error.reason)
        else:
            super()._tell_of(error)

    def _say_farewell(self, reason: str) -> None:
        """Who would join goes; servers come again when their last epoch has ended."""
        deadline = time.monotonic() + _FAREWELL_SECONDS
        for participant in self._roster.participants.values():
            self._router.send(participant.route, messages.Dismissed(reason))
        while time.monotonic() < deadline:
            if self._router.poll(POLL_SECONDS):
                route, message = self._router.receive()
                if isinstance(message, messages.Join):
                    self._router.send(route, messages.Dismissed(reason))


def _counted(members: Sequence[str]) -> str:
    noun = "worker" if len(members) == 1 else "workers"
    return f"{len(members)} {noun} ({', '.join(members)})"
