"""Servers that have been started again, and take the places of lost ones in a running job."""

from __future__ import annotations

import dataclasses
import logging
import time
import typing
from collections.abc import Callable

from tf_byteps.errors import RendezvousError
from tf_byteps.rendezvous import messages
from tf_byteps.rendezvous.messages import Address
from tf_byteps.rendezvous.participant import Refusal
from tf_byteps.rendezvous.roster import Roster
from tf_byteps.rendezvous.router import Router

if typing.TYPE_CHECKING:
    from tf_byteps.rendezvous.messages import Book, Join

# A server that was readmitted and is lost within this time may come again a little later only.
_SOON_SECONDS = 60.0

# Called with the rank, the `Address` and the host id of a server that has come back.
Readmit = Callable[[int, Address, str], None]

_logger = logging.getLogger("tf_byteps")


class ServerReturns:
    """Answers servers that come while the job runs. One thread uses it.

    Args:
        router: by which they are answered.
        roster: the job's participants.
        book: what the job began with; `book` is what it is now.
        longest_pause: seconds after which a server may come back in any case.
    """

    def __init__(self, router: Router, roster: Roster, book: Book, longest_pause: float) -> None:
        self.book = book
        self._router = router
        self._roster = roster
        self._longest_pause = longest_pause
        self._returns = {}  # rank of a server: when it was readmitted, and how long it stays lost

    def answer(self, route: bytes, join: Join, lost: list[int], readmit: Readmit | None) -> bool:
        """Gives a server the place of a lost one, or refuses it.

        Args:
            route, join: what has come, and from where.
            lost: the ranks of lost servers; that of one that is back is removed.
            readmit: see `Scheduler.answer_late_joins`.

        Returns:
            Whether it was answered; False: it has no such place.
        """
        before = self._roster.find_predecessor(join, lost)
        if before is None:
            return False
        now = time.monotonic()
        rank = before.rank_in("server")
        readmitted, pause = self._returns.get(rank, (-_SOON_SECONDS, 0.0))
        if now < readmitted + pause:
            text = f"server {rank} has just been lost again: it may come back a little later"
            self._router.send(route, messages.Progress(text, admitted=False))
            return True
        try:
            server = self._roster.replace(before, join, route, now)
        except Refusal as refusal:
            self._router.refuse(route, join, refusal)
            return True
        address = join.server_endpoint
        assert address is not None  # else it would be refused
        lost.remove(rank)
        try:
            readmit(rank, address, join.host_id)
        except RendezvousError as error:  # the job has just ended
            _logger.warning("%s cannot come back: %s", server, error)
            self._roster.remove(server)
            return False
        # One that is lost again and again, because a worker cannot reach it, must not hold the
        # others up each time.
        pause = 2 * pause + 1 if now < readmitted + _SOON_SECONDS else 0.0
        self._returns[rank] = now, min(pause, self._longest_pause)
        _logger.warning("%s has taken the place of server %d, which was lost", server, rank)
        self._enter(rank, address, join.host_id)
        encoded = messages.EncodedBook(self.book)
        self._router.send_encoded(server.route, encoded.assign("server", rank))
        return True

    def _enter(self, rank: int, address: Address, host: str) -> None:
        """Has the book say where a server is now."""
        endpoints, hosts = list(self.book.server_endpoints), list(self.book.server_hosts)
        endpoints[rank], hosts[rank] = address, host
        self.book = dataclasses.replace(self.book, server_endpoints=endpoints, server_hosts=hosts)
