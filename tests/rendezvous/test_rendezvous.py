"""Rendezvous over real sockets, without an engine: the caller hands that in."""

import concurrent.futures
import dataclasses
import logging
import pickle
import socket
import threading
import time

import pytest
import zmq

import tf_byteps
from tests.cluster import wait_until
from tf_byteps.config import Config
from tf_byteps.errors import RendezvousError
from tf_byteps.rendezvous import client, messages, roster
from tf_byteps.rendezvous.messages import Address, Book
from tf_byteps.rendezvous.scheduler import Scheduler

COORDINATOR = Address("127.0.0.1", 4321)


class Job:
    """A scheduler in a thread, and participants in further threads."""

    def __init__(self, workers, servers=0, **settings):
        self.settings = {"num_servers": servers, "rendezvous_timeout": 20.0, **settings}
        config = self.config("scheduler", global_size=workers, scheduler_port=0)
        self.workers = workers
        self.scheduler = Scheduler(config, lambda book: COORDINATOR)
        self._threads = concurrent.futures.ThreadPoolExecutor(16)
        self.book = self._threads.submit(self.scheduler.run)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.scheduler.stop()
        self._threads.shutdown()
        self.scheduler.close()

    def config(self, role, **settings):
        place = {"scheduler_host": "127.0.0.1", "role": role, "connect_timeout": 10.0}
        return Config(**{**place, **self.settings, **settings})

    def worker(self, rank=None, endpoint=None, start_server=None, **settings):
        """Joins in a thread; returns the future of book and rank."""
        port = self.scheduler.address.port
        machines = {"num_worker_machines": self.workers, "worker_id": rank}
        config = self.config("worker", scheduler_port=port, **{**machines, **settings})
        return self._threads.submit(client.join, config, endpoint, start_server)

    def server(self, port, start_server=lambda book, rank: None, **settings):
        config = self.config("server", scheduler_port=self.scheduler.address.port, **settings)
        return self._threads.submit(client.join, config, Address("127.0.0.1", port), start_server)

    def answer_late_joins(self, *arguments, **named):
        """What the scheduler's thread does once the job runs: a socket has one thread at a time."""
        self.book.result(20)
        self.scheduler.answer_late_joins(*arguments, **named)


def reported(future):
    """The message of the error that a participant gets."""
    with pytest.raises(RendezvousError) as caught:
        future.result(30)
    return str(caught.value)


def test_all_get_the_same_book():
    with Job(workers=3, servers=1) as job:
        futures = [job.worker(rank) for rank in (2, 0, 1)]
        server = job.server(7000)
        books = [future.result(20) for future in futures]
        assert [rank for _, rank in books] == [2, 0, 1]
        book = job.book.result(20)
        assert all(other == book for other, _ in books)
        assert server.result(20) == (book, 0)
        assert book.server_endpoints == [Address("127.0.0.1", 7000)]
        assert book.coordinator_endpoint == COORDINATOR
        assert len(book.worker_hosts) == 3 and len(book.job_id) == 16


@pytest.mark.parametrize(
    ("processors", "servers", "settings", "connections"),
    [
        (32, 1, {}, 4),
        (32, 2, {}, 2),
        (32, 5, {}, 1),
        (4, 1, {}, 1),
        (32, 1, {"connections_per_server": 3}, 3),
    ],
)
def test_connections_follow_servers_and_processors(
    monkeypatch, processors, servers, settings, connections
):
    monkeypatch.setattr(roster, "processors", lambda: processors)
    with Job(workers=2, servers=servers, **settings) as job:
        for number in range(servers):
            job.server(7000 + number)
        book, _ = [job.worker(rank) for rank in (0, 1)][0].result(20)
        assert book.options["connections_per_server"] == connections


def test_workers_without_a_rank_get_the_free_ones():
    with Job(workers=4) as job:
        futures = [job.worker(rank) for rank in (None, 2, None, 0)]
        ranks = [future.result(20)[1] for future in futures]
        assert ranks[1] == 2 and ranks[3] == 0
        assert sorted(ranks) == [0, 1, 2, 3]


def test_local_ranks_follow_host_ids_in_rank_order():
    with Job(workers=4) as job:
        hosts = ["blue", "red", "blue", "blue"]
        futures = [job.worker(rank, host_id=host) for rank, host in enumerate(hosts)]
        book, _ = futures[0].result(20)
        assert book.worker_hosts == hosts
        assert [book.local_rank(rank) for rank in range(4)] == [0, 0, 1, 2]
        assert [book.local_size(rank) for rank in range(4)] == [3, 1, 3, 3]


@pytest.mark.parametrize(
    ("gpus", "hosts", "share"),
    [
        (["0", "1"], ["a", "a"], True),
        (["0", "1", "2"], ["a", "b", "b"], True),
        (["0", "0"], ["a", "b"], False),
        (["0", "0"], ["a", "a"], False),
        ([None, None], ["a", "a"], False),
    ],
)
def test_workers_with_a_gpu_each_share_their_hosts(monkeypatch, gpus, hosts, share):
    monkeypatch.setattr(client, "own_gpu", lambda environment, left=list(gpus): left.pop())
    with Job(workers=len(hosts)) as job:
        for rank, host in enumerate(hosts):
            job.worker(rank, host_id=host)
        assert job.book.result(20).gpus_share_hosts is share


def test_workers_with_and_without_a_gpu_are_no_job(monkeypatch):
    monkeypatch.setattr(client, "own_gpu", lambda environment, left=["0", None]: left.pop())
    with Job(workers=2) as job:
        futures = [job.worker(rank) for rank in range(2)]
        for message in [reported(future) for future in futures]:
            assert "has no GPU, but worker" in message
            assert "hide all with CUDA_VISIBLE_DEVICES=-1" in message


def test_server_processes_come_before_colocated_servers_and_in_order():
    def start(book, rank):
        started.append(rank)

    started = []
    with Job(workers=2, servers=3) as job:
        futures = [
            job.server(7003),
            job.server(7001, server_id=1),
            job.server(7002, server_id=0),
            job.worker(1, Address("127.0.0.1", 8001), start),
            job.worker(0, Address("127.0.0.1", 8000), start),
        ]
        book = job.book.result(20)
        ports = [endpoint.port for endpoint in book.server_endpoints]
        assert ports == [7002, 7001, 7003, 8000, 8001]
        assert [future.result(20)[1] for future in futures[:3]] == [2, 1, 0]
        assert sorted(started) == [3, 4]


def test_workers_get_the_book_after_all_servers_have_started():
    may_start = threading.Event()
    with Job(workers=1, servers=1) as job:
        server = job.server(7000, lambda book, rank: may_start.wait(10))
        worker = job.worker(0)
        time.sleep(0.7)
        assert not worker.done() and not server.done()
        may_start.set()
        worker.result(20)


def test_a_setting_in_one_process_holds_for_all():
    with Job(workers=2) as job:
        futures = [
            job.worker(0, sources={"part_bytes": "argument"}, part_bytes=1000),
            job.worker(1),
        ]
        for future in futures:
            book, _ = future.result(20)
            assert (book.options["part_bytes"], book.options["credit_bytes"]) == (1000, 0)


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({"rank": 0}, "rank 0 is taken by"),
        (
            {"rank": 1, "job_id": "other"},
            "it belongs to job 'other' and this scheduler serves job None",
        ),
        ({"rank": 1, "num_worker_machines": 3}, "expects 3 workers, but this job has 2"),
        ({"rank": 1, "num_servers": 1}, "expects 1 server processes, but the scheduler expects 0"),
        (
            {"rank": 1, "part_bytes": 2000, "sources": {"part_bytes": "argument"}},
            "its part_bytes is 2000 but that of worker 0",
        ),
    ],
)
def test_one_that_does_not_fit_is_refused_and_the_rest_goes_on(settings, expected):
    with Job(workers=2) as job:
        first = job.worker(0, part_bytes=1000, sources={"part_bytes": "argument"})
        wait_until(lambda: job.scheduler._roster.participants)
        message = reported(job.worker(**settings))
        assert expected in message
        assert f"127.0.0.1:{job.scheduler.address.port} refuses this worker" in message
        assert not first.done()
        job.worker(1).result(20)
        first.result(20)


def test_another_package_version_is_refused(monkeypatch):
    request = client._request

    def old_request(*arguments):
        return dataclasses.replace(request(*arguments), package_version="0.0.1")

    with Job(workers=1) as job:
        monkeypatch.setattr(client, "_request", old_request)
        message = reported(job.worker(0))
    assert f"it has tf_byteps 0.0.1 and the scheduler has {tf_byteps.__version__}" in message


def test_too_many_participants():
    beats = {"heartbeat_interval": 0.5, "heartbeat_timeout": 2.0}
    with Job(workers=2, servers=1, **beats) as job:
        job.worker(0)
        server = job.server(7000)
        wait_until(lambda: len(job.scheduler._roster.participants) == 2)
        assert "all 1 server processes of this job have already joined" in reported(
            job.server(7001)
        )
        assert not server.done()
        job.worker(1).result(20)
        server.result(20)
        late = job.worker(1)
        wait_until(lambda: job.answer_late_joins(is_failing=False) or late.done())
        assert "this job is running already" in reported(late)


def test_a_lost_server_is_taken_back():
    beats = {"heartbeat_interval": 0.5, "heartbeat_timeout": 2.0}
    with Job(workers=1, servers=2, **beats) as job:
        first = [job.server(7000, server_id=0), job.server(7001, server_id=1)]
        book = job.worker(0).result(20)[0]
        assert [future.result(20)[1] for future in first] == [0, 1]
        lost, taken, started = [], [], []

        def readmit(rank, address, host):
            taken.append((rank, address, host))
            lost.remove(rank)

        def serve(*futures):
            wait_until(
                lambda: (
                    job.answer_late_joins(False, lost, readmit)
                    or all(future.done() for future in futures)
                )
            )

        lost.append(1)
        stranger = job.server(7002, server_id=0)  # that one lives
        again = job.server(7003, lambda *place: started.append(place), server_id=1, host_id="b")
        serve(stranger, again)
        assert "this job is running already" in reported(stranger)
        address = Address("127.0.0.1", 7003)
        assert taken == [(1, address, "b")]
        new_book, rank = again.result(20)
        assert started == [(new_book, 1)] and rank == 1
        assert new_book.server_endpoints == [book.server_endpoints[0], address]
        assert new_book.server_hosts[1] == "b" and new_book.epoch == book.epoch
        lost.append(0)  # one without a number takes any place
        anybody = job.server(7004)
        serve(anybody)
        assert anybody.result(20)[1] == 0
        lost.append(1)
        other = job.server(7005, server_id=1, num_servers=3)
        serve(other)
        assert "it expects 3 server processes" in reported(other)
        assert lost == [1]


def test_a_server_that_is_lost_again_and_again_has_to_wait():
    with Job(workers=1, servers=2, heartbeat_interval=0.2, heartbeat_timeout=1.0) as job:
        first = [job.server(7000, server_id=0), job.server(7001, server_id=1)]
        job.worker(0).result(20)
        taken = []

        def serve(future):
            lost = [1]
            wait_until(
                lambda: (
                    job.answer_late_joins(
                        False, lost, lambda rank, *_: taken.append((rank, time.monotonic()))
                    )
                    or future.done()
                )
            )
            return future.result(1)[1]

        assert [future.result(20)[1] for future in first] == [0, 1]
        assert [serve(job.server(7002 + n, server_id=1)) for n in range(3)] == [1, 1, 1]
        (_, second), (_, third) = taken[1:]
        assert third - second > 0.4


def test_a_server_that_is_not_taken_back_waits_for_the_end():
    def refuse(rank, address, host):
        raise RendezvousError("server 0 is not lost")

    beats = {"heartbeat_interval": 0.5, "heartbeat_timeout": 2.0}
    with Job(workers=1, servers=1, **beats) as job:
        job.server(7000)
        job.worker(0).result(20)
        late = job.server(7001)
        wait_until(lambda: job.answer_late_joins(False, [0], refuse) or late.done())
        assert "this job is running already" in reported(late)


def test_timeout_names_who_is_missing():
    with Job(workers=3, servers=1, rendezvous_timeout=1.5) as job:
        futures = [job.worker(0), job.worker(1)]
        expected = "2 of 3 workers and 0 of 1 servers have joined; missing: worker 2, 1 server"
        for future in [*futures, job.book]:
            assert expected in reported(future)


def test_a_client_has_its_own_timeout():
    with Job(workers=2) as job:
        assert "1 of 2 workers" in reported(job.worker(0, rendezvous_timeout=1.2))


def test_one_that_vanishes_is_missing_again():
    settings = {"heartbeat_interval": 0.2, "heartbeat_timeout": 1.5}
    with Job(workers=2, **settings) as job:
        context = zmq.Context()
        line = context.socket(zmq.DEALER)
        line.connect(f"tcp://127.0.0.1:{job.scheduler.address.port}")
        config = job.config("worker", num_worker_machines=2, worker_id=1, scheduler_port=1)
        line.send(messages.encode(client._request(config, None)))
        wait_until(lambda: job.scheduler._roster.participants)
        context.destroy(linger=0)
        wait_until(lambda: not job.scheduler._roster.participants)
        futures = [job.worker(0), job.worker(1)]
        assert [future.result(20)[1] for future in futures] == [0, 1]


def test_one_that_gives_up_while_the_job_begins_ends_it_for_all():
    def fail(book, rank):
        raise RuntimeError("no memory")

    with Job(workers=1, servers=2) as job:
        worker = job.worker(0)
        good = job.server(7000)
        with pytest.raises(RuntimeError, match="no memory"):
            job.server(7001, fail).result(20)
        assert "gave up while the job began" in reported(worker)
        assert "gave up while the job began" in reported(job.book)
        assert good.result(20)[1] == 0  # it runs; the coordinator ends it


def test_a_coordinator_that_does_not_start_ends_the_job_for_all():
    def fail(book):
        raise RendezvousError("no port is free")

    with Job(workers=1) as job:
        job.scheduler._start_coordinator = fail
        assert reported(job.worker(0)) == "the job did not start: no port is free"
        assert reported(job.book) == "no port is free"


class TestUnreachable:
    def join(self, host, port, answer_timeout=None):
        config = Config(
            num_worker_machines=2, scheduler_host=host, scheduler_port=port, rendezvous_timeout=1.0
        )
        with pytest.raises(RendezvousError) as caught:
            client.join(config, answer_timeout=answer_timeout)
        return str(caught.value)

    def test_more_patience_than_time(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            message = self.join("127.0.0.1", other.getsockname()[1], answer_timeout=60)
        assert "the job did not begin in 1 s: no answer from 127.0.0.1:" in message

    def test_nobody_listens(self):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        message = self.join("127.0.0.1", port)
        assert f"cannot reach the scheduler at 127.0.0.1:{port}: no answer in 1 s to" in message
        assert "Connection refused" in message and "BYTEPS_RENDEZVOUS_TIMEOUT" in message

    def test_something_else_listens(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            message = self.join("127.0.0.1", other.getsockname()[1])
        assert "something listens there, but does not answer as a tf_byteps scheduler" in message

    def test_the_name_is_unknown(self):
        message = self.join("no-such-host.invalid", 9000)
        assert "the name 'no-such-host.invalid' cannot be resolved" in message


def test_a_scheduler_that_dies_is_noticed():
    with Job(workers=2) as job:
        settings = {"heartbeat_interval": 0.2, "heartbeat_timeout": 1.5}
        worker = job.worker(0, **settings)
        wait_until(lambda: job.scheduler._roster.participants)
        job.scheduler._tell_of = lambda error: None  # as if it was killed
        job.scheduler.stop()
        assert "stopped" in reported(job.book)
        job.scheduler.close()
        message = reported(worker)
        assert "has not answered for" in message and "1 of 2 workers" in message


def test_a_taken_port_is_named():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        config = Config(role="scheduler", scheduler_host="127.0.0.1", scheduler_port=port)
        with pytest.raises(RendezvousError, match=f"cannot listen at 127.0.0.1:{port}"):
            Scheduler(config, lambda book: None)


def test_foreign_messages_do_no_harm():
    with Job(workers=1) as job:
        context = zmq.Context()
        line = context.socket(zmq.DEALER)
        line.connect(f"tcp://127.0.0.1:{job.scheduler.address.port}")
        for data in (b"", b"{", pickle.dumps(print), b'{"version": 1, "kind": "Join"}'):
            line.send(data)
            assert line.poll(5000)
            assert isinstance(messages.decode(line.recv()), messages.Refused)
        context.destroy(linger=0)
        job.worker(0).result(20)


BOOK = Book("job", 0, ["a"], ["b"], [Address("h", 1)], [-1], None, {"part_bytes": 8, "x": 0.5})


class TestMessages:
    @pytest.mark.parametrize(
        "message",
        [
            messages.Assigned("worker", 0, BOOK),
            messages.Ready("me", "server"),
            messages.Progress("half", admitted=True),
            client._request(Config(job_id="j"), Address("::1", 5)),
        ],
    )
    def test_decode_inverts_encode(self, message):
        assert messages.decode(messages.encode(message)) == message

    @pytest.mark.parametrize(
        "data, expected",
        [
            (b"\x80\x04.", "does not speak"),
            (b"[]", "does not speak"),
            (b'{"kind": "Ready", "version": 99}', "version 99 of rendezvous"),
            (b'{"kind": "Eval", "version": 1}', "no message 'Eval'"),
            (b'{"kind": "Ready", "version": 1, "stage": "x"}', "must have the fields"),
            (
                b'{"kind": "Ready", "version": 1, "participant": 3, "stage": "x"}',
                "participant is 3",
            ),
        ],
    )
    def test_malformed(self, data, expected):
        with pytest.raises(RendezvousError, match=expected):
            messages.decode(data)

    def test_addresses_are_written_as_in_a_url(self):
        assert str(Address("h", 1)) == "h:1"
        assert str(Address("::1", 1)) == "[::1]:1"


def test_a_start_of_a_minute_is_usual_under_bpslaunch():
    """It sees whether processes run. Without an answer of the scheduler something may be wrong."""
    place = {"scheduler_host": "127.0.0.1", "scheduler_port": 1}
    by_hand = Config(role="server", **place)
    launched = Config(role="server", job_id="j", global_rank=0, global_size=2, **place)
    progress = "0 of 2 workers have joined"
    assert client._level(launched, 20, progress) == logging.INFO
    assert client._level(launched, 61, progress) == logging.WARNING
    assert client._level(launched, 20, "") == logging.WARNING
    assert client._level(by_hand, 20, progress) == logging.WARNING
