"""Who has joined a job, whether they fit together, and the address book that follows."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Mapping, Sequence

import tf_byteps
from tf_byteps.errors import RendezvousError
from tf_byteps.per_process import per_process
from tf_byteps.rendezvous.host import processors
from tf_byteps.rendezvous.messages import Book, Join
from tf_byteps.rendezvous.participant import (
    Participant,
    PlaceTaken,
    Refusal,
    place_of,
    server_order,
)
from tf_byteps.rendezvous.shared_settings import SharedSettings

_MAX_TEXT = 1024
_MAX_NUMBER = 1 << 16  # of workers or servers
_MAX_NAMED = 16  # of those that are missing
# Connections of a worker to all servers, if nobody says how many: in jobs of at most so many
# workers, where the scheduler, as a sample of the job's machines, has so many processors.
MOST_CONNECTIONS = 4
_MOST_WORKERS = 64
_LEAST_PROCESSORS = 8


@per_process
def run_id() -> str:
    """That of this process, as `Book.run_id`: another one than its parent's, if it was forked."""
    return secrets.token_hex(8)


class Roster:
    """The participants of one job. To admit one costs the same however many there are.

    Args:
        job_id: the scheduler's job id, or None; participants must have the same.
        num_workers: how many workers there are to be, or None if the workers say it.
        num_servers: how many server processes there are to be.
        options: the shared options that were set for the scheduler, by `Config` field.
        defaults: all shared options, for those that nobody set.
    """

    def __init__(
        self,
        job_id: str | None,
        num_workers: int | None,
        num_servers: int,
        options: Mapping[str, float],
        defaults: Mapping[str, float],
    ) -> None:
        self.participants = {}
        self.num_workers = None
        self.num_servers = num_servers
        self._count = {"worker": 0, "server": 0}
        self._holders = {}  # participant by its place, see `place_of`
        self._free_ranks = {}  # the keys; a set that keeps its order
        self._expect_workers(num_workers)
        self._job_id = job_id
        self._settings = SharedSettings(options, defaults)

    def admit(self, join: Join, route: bytes, now: float) -> Participant:
        """Adds a participant, or notes that it is still there.

        Raises:
            Refusal: it does not fit into this job, or its place is taken (PlaceTaken).
        """
        known = self.participants.get(join.participant)
        if known is not None:
            known.route, known.last_seen = route, now
            return known
        participant = Participant(join, route, now)
        self._check_form(join)
        self._check_same_job(join)
        self._check_place(participant)
        self._settings.agree(participant)
        if participant.is_worker and self.num_workers is None and join.member is None:
            self._expect_workers(join.size)
        self._add(participant)
        return participant

    def _add(self, participant: Participant) -> None:
        join = participant.join
        self.participants[join.participant] = participant
        self._count[join.role] += 1
        self._holders[place_of(join)] = participant
        if participant.is_worker and join.rank is not None:
            self._free_ranks.pop(join.rank, None)

    def remove(self, participant: Participant) -> None:
        """Forgets a participant; its place is free again."""
        join = participant.join
        del self.participants[join.participant]
        self._count[join.role] -= 1
        del self._holders[place_of(join)]
        if participant.is_worker and join.rank is not None:
            self._free_ranks[join.rank] = None

    def _expect_workers(self, number: int | None) -> None:
        self.num_workers = number
        self._free_ranks = dict.fromkeys(range(number or 0))

    def find_predecessor(self, join: Join, lost: Sequence[int]) -> Participant | None:
        """The server that another one may take the place of.

        Args:
            join: what asks to take part.
            lost: the ranks, among servers, of those that are lost.

        Returns:
            A `Participant` with one of these ranks, or None.
        """
        places = [p for p in self.server_processes() if p.server_rank in lost]
        if join.server_id is not None:
            places = [p for p in places if p.join.server_id == join.server_id]
        if join.role != "server" or not places:
            return None
        # Without a number: where it was, if possible.
        return min(places, key=lambda p: (p.join.host_id != join.host_id, p.server_rank))

    def replace(self, before: Participant, join: Join, route: bytes, now: float) -> Participant:
        """Admits a server in the place of one that is lost, with its rank.

        Args:
            before: a `Participant`.
            join, route, now: see `admit`.

        Raises:
            Refusal: it does not fit into this job.
        """
        self.remove(before)
        try:
            participant = self.admit(join, route, now)
        except Refusal:
            self._add(before)
            raise
        participant.server_rank = before.server_rank
        return participant

    def workers(self) -> list[Participant]:
        return [p for p in self.participants.values() if p.is_worker]

    def has_worker(self) -> bool:
        return self._count["worker"] > 0

    def server_processes(self) -> list[Participant]:
        return [p for p in self.participants.values() if not p.is_worker]

    def complete(self) -> bool:
        return (
            self._count["worker"] == self.num_workers and self._count["server"] == self.num_servers
        )

    def progress(self) -> str:
        """Who has joined and who is missing, in a sentence."""
        workers, servers = self._count["worker"], self._count["server"]
        expected = "an unknown number of" if self.num_workers is None else self.num_workers
        missing = self._missing_workers()
        if self.num_servers > servers:
            missing.append(_count(self.num_servers - servers, "server"))
        joined = have_joined(f"{workers} of {expected}", servers, self.num_servers)
        return joined + (f"; missing: {', '.join(missing)}" if missing else "")

    def build_book(self) -> Book:
        """Assigns all ranks and writes the address book. Call when complete."""
        self._assign_ranks()
        workers = sorted(self.workers(), key=lambda p: p.rank_in("worker"))
        servers = sorted(
            (p for p in self.participants.values() if p.hosts_server), key=lambda p: p.server_rank
        )
        return Book(
            # A drawn one is not asked of those who come later, in the place of a lost server.
            job_id=self._job_id or secrets.token_hex(8),
            # Not that of a job before, also if another process was its scheduler: milliseconds.
            epoch=int(time.time() * 1000) % 2**32,
            worker_hosts=[p.join.host_id for p in workers],
            server_hosts=[p.join.host_id for p in servers],
            server_endpoints=[p.join.server_endpoint for p in servers],
            server_workers=[p.rank if p.is_worker else -1 for p in servers],
            coordinator_endpoint=None,
            options=self._settings.values(self._connections_per_server),
            gpus_share_hosts=self._gpus_share_hosts(workers),
            run_id=run_id(),
        )

    def _gpus_share_hosts(self, workers: Sequence[Participant]) -> bool:
        """Whether each worker has a GPU that no other one uses, and some have a host in common.

        Raises:
            RendezvousError: some have a GPU, and some have none.
        """
        without = [p for p in workers if p.join.gpu is None]
        if 0 < len(without) < len(workers):
            has_one = next(p for p in workers if p.join.gpu is not None)
            raise RendezvousError(
                f"{without[0]} has no GPU, but {has_one} has one: give every worker a GPU, or hide "
                f"all with CUDA_VISIBLE_DEVICES=-1"
            )
        used = {(p.join.host_id, p.join.gpu) for p in workers}
        hosts = {p.join.host_id for p in workers}
        return not without and len(used) == len(workers) > len(hosts)

    def _connections_per_server(self) -> int:
        """A thread reads a connection at a time, and sums what comes: some keep more busy."""
        servers = sum(p.hosts_server for p in self.participants.values())
        is_large = self._count["worker"] > _MOST_WORKERS
        if processors() < _LEAST_PROCESSORS or is_large or not servers:
            return 1
        return max(1, MOST_CONNECTIONS // servers)

    def _missing_workers(self) -> list[str]:
        if self.num_workers is None:
            return []
        count = self.num_workers - self._count["worker"]
        if len(self._free_ranks) > count:  # some workers may get any of the free ranks
            return [_count(count, "worker")] if count else []
        named = sorted(itertools.islice(self._free_ranks, _MAX_NAMED))
        more = [_count(count - len(named), "more worker")] if count > len(named) else []
        return [f"worker {rank}" for rank in named] + more

    def _check_form(self, join: Join) -> None:
        """What no process of tf_byteps says, and what its own configuration would refuse."""
        optional = (join.job_id, join.gpu, join.member)
        texts = (join.participant, join.process, join.host_id, *(text or "" for text in optional))
        numbers = (join.size, join.rank, join.server_id, join.num_servers)
        endpoints = [address for address in (join.server_endpoint, join.metrics) if address]
        if (
            join.role not in ("worker", "server")
            or max(len(text) for text in texts) > _MAX_TEXT
            or not all(number is None or 0 <= number <= _MAX_NUMBER for number in numbers)
            or (join.role == "worker" and join.size < 1)
            or not all(0 < address.port < 65536 for address in endpoints)
            or any(len(address.host) > _MAX_TEXT for address in endpoints)
        ):
            raise Refusal("its request is malformed: install one version of tf_byteps everywhere")
        self._settings.check_usable(join)

    def _check_same_job(self, join: Join) -> None:
        if join.package_version != tf_byteps.__version__:
            raise Refusal(
                f"it has tf_byteps {join.package_version} and the scheduler has "
                f"{tf_byteps.__version__}: install one version everywhere"
            )
        if join.job_id != self._job_id:
            raise Refusal(
                f"it belongs to job {join.job_id!r} and this scheduler serves job "
                f"{self._job_id!r}: check BYTEPS_JOB_ID (or TF_CONFIG) and the scheduler's address"
            )

    def _check_place(self, participant: Participant) -> None:
        join = participant.join
        if join.num_servers != self.num_servers:
            raise Refusal(
                f"it expects {join.num_servers} server processes, but the scheduler expects "
                f"{self.num_servers}: set DMLC_NUM_SERVER to the same number everywhere"
            )
        if participant.is_worker:
            self._check_worker_place(join)
        else:
            self._check_server_place(participant)

    def _check_worker_place(self, join: Join) -> None:
        if join.member is not None:
            raise Refusal(
                "it expects an elastic job, but the scheduler does not: set "
                "BYTEPS_MIN_WORKERS everywhere or nowhere"
            )
        if self.num_workers is not None and join.size != self.num_workers:
            raise Refusal(
                f"it expects {join.size} workers, but this job has {self.num_workers}: set "
                f"DMLC_NUM_WORKER and BYTEPS_LOCAL_SIZE (or BYTEPS_GLOBAL_SIZE) to the same values "
                f"everywhere"
            )
        if self._count["worker"] == join.size:
            raise PlaceTaken(
                f"all {join.size} workers of this job have already joined", self.workers()
            )
        if join.rank is not None and join.rank >= join.size:
            raise Refusal(f"its rank is {join.rank}, but the job has {join.size} workers")
        other = self._holders.get(place_of(join))
        if other is not None:
            raise PlaceTaken(
                f"rank {join.rank} is taken by {other.join.process}: give each worker its own "
                f"DMLC_WORKER_ID and BYTEPS_LOCAL_RANK (or BYTEPS_GLOBAL_RANK)",
                [other],
            )

    def _check_server_place(self, participant: Participant) -> None:
        join = participant.join
        if not participant.hosts_server:
            raise Refusal("a server must say where it listens")
        if self._count["server"] == self.num_servers:
            raise PlaceTaken(
                f"all {self.num_servers} server processes of this job have already joined: set "
                f"DMLC_NUM_SERVER to their number everywhere",
                self.server_processes(),
            )
        other = self._holders.get(place_of(join))
        if other is not None:
            raise PlaceTaken(
                f"server id {join.server_id} is taken by {other.join.process}: give each "
                f"server its own BYTEPS_SERVER_ID, or none",
                [other],
            )

    def _assign_ranks(self) -> None:
        taken = {p.join.rank for p in self.workers()}
        free = (rank for rank in range(self.num_workers or 0) if rank not in taken)
        # Those without a rank are ordered so that workers of one host are neighbours.
        for worker in sorted(self.workers(), key=lambda p: (p.join.host_id, p.join.participant)):
            worker.rank = next(free) if worker.join.rank is None else worker.join.rank
        self._assign_server_ranks()

    def _assign_server_ranks(self) -> None:
        hosts = (p for p in self.workers() if p.hosts_server)
        colocated = sorted(hosts, key=lambda p: p.rank_in("worker"))
        separate = sorted(self.server_processes(), key=server_order)
        for rank, server in enumerate(separate + colocated):
            server.server_rank = rank


def have_joined(workers: str, servers: int, num_servers: int) -> str:
    """A sentence. Servers inside of workers join with these.

    Args:
        workers: how many have, and of how many.
        servers: how many server processes have.
        num_servers: of how many.
    """
    others = f" and {servers} of {num_servers} servers" if num_servers else ""
    return f"{workers} workers{others} have joined"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
