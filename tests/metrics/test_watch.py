"""Who has been lost and who has only moved, from made-up answers; real jobs are in test_top.py."""

import time

from tf_byteps.metrics import watch
from tf_byteps.metrics.local import LocalJob, LocalSocket
from tf_byteps.metrics.reading import Reading, Silence
from tf_byteps.metrics.rows import LOST, RUNS
from tf_byteps.metrics.watch import Watch
from tf_byteps.rendezvous.messages import Address

JOB = LocalJob(0, "0" * 16)
FIRST = Address("127.0.0.1", 9400)
NOBODY = Silence("cannot be reached", nobody_listens=True)


def at(port):
    return Address("127.0.0.1", port)


def answer(process_id, rank, job=1):
    """Processes that are started together are so in the same hundredth of a second."""
    about = {"process_id": process_id, "process_start_time_seconds": 1000.25, "process_job": job}
    return Reading(time.monotonic(), {("worker", rank): {}}, about)


def worker_of_many(elsewhere):
    """Worker 0, which knows servers 0 and 1, and how many are on other hosts."""
    samples = {("tf_byteps_path_pushed_bytes_total", (server, 0)): 1.0 for server in range(2)}
    samples["tf_byteps_elsewhere_servers", ()] = elsewhere
    return Reading(time.monotonic(), {("worker", 0): samples}, {"process_id": 1})


def look(monkeypatch, watching, answers):
    everybody = lambda asked, _: {address: answers.get(address, NOBODY) for address in asked}  # noqa: E731
    monkeypatch.setattr(watch, "read_all", everybody)
    return watching.look()


def test_one_that_moves_does_not_hide_one_that_was_started_with_it_and_is_lost(monkeypatch):
    watching = Watch([FIRST])
    view = look(monkeypatch, watching, {at(9400): answer(1, 0), at(9401): answer(2, 1)})
    assert [row.rank for row in view.workers] == [0, 1] and not view.replaced

    # Worker 0 is killed; the other one takes its rank, and another port.
    watching._search_at = 0.0
    view = look(monkeypatch, watching, {at(9402): answer(2, 0)})
    assert [place for place, _ in view.replaced] == [("worker", 0)]
    assert [(row.rank, row.address) for row in view.workers] == [(0, "127.0.0.1:9402")]


def test_one_that_moves_is_not_lost(monkeypatch):
    watching = Watch([FIRST])
    look(monkeypatch, watching, {at(9400): answer(1, 0), at(9401): answer(2, 1)})
    watching._search_at = 0.0
    view = look(monkeypatch, watching, {at(9400): answer(1, 1), at(9403): answer(2, 0)})
    assert not view.replaced
    assert [row.address for row in view.workers] == ["127.0.0.1:9403", "127.0.0.1:9400"]


def test_who_is_on_other_hosts_is_said_of_a_local_job_only(monkeypatch):
    here = LocalSocket(JOB, 1, "00000000")
    monkeypatch.setattr(watch, "addresses_of", lambda _: [here])
    servers = [("server", 0), ("server", 1)]
    view = look(monkeypatch, Watch([JOB]), {here: worker_of_many(elsewhere=2.0)})
    assert (view.unseen, view.elsewhere) == ([], servers)
    # One of them is lost, and the worker cannot say which.
    view = look(monkeypatch, Watch([JOB]), {here: worker_of_many(elsewhere=1.0)})
    assert (view.unseen, view.elsewhere) == (servers, [])
    view = look(monkeypatch, Watch([FIRST]), {here: worker_of_many(elsewhere=2.0)})
    assert (view.unseen, view.elsewhere) == (servers, [])


def test_processes_of_another_job_at_the_same_ports_are_left_out(monkeypatch):
    watching = Watch([FIRST])
    both = {at(9400): answer(1, 0), at(9401): answer(5, 0, job=2), at(9402): answer(2, 1)}
    view = look(monkeypatch, watching, both)
    assert [row.address for row in view.workers] == ["127.0.0.1:9400", "127.0.0.1:9402"]
    assert not view.replaced and not view.trouble

    # Its port is taken by the other job, which is none of its processes.
    watching._search_at = 0.0
    view = look(monkeypatch, watching, {**both, at(9400): answer(6, 1, job=2)})
    assert [row.state for row in view.workers] == [LOST, RUNS]


def test_who_asks_from_a_port_of_the_other_job_sees_that_one(monkeypatch):
    both = {at(9401): answer(5, 0, job=2), at(9402): answer(2, 1)}
    view = look(monkeypatch, Watch([at(9401)]), both)
    assert [row.address for row in view.workers] == ["127.0.0.1:9401"]


def test_a_host_that_has_another_job_only_is_said(monkeypatch):
    elsewhere = Address("10.0.0.2", 9400)
    answers = {FIRST: answer(1, 0), elsewhere: answer(5, 0, job=2)}
    view = look(monkeypatch, Watch([FIRST, elsewhere]), answers)
    assert view.trouble == ["10.0.0.2:9400 serves metrics of another job than 127.0.0.1:9400"]
