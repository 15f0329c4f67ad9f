"""bpstop on the scheduler's host shows the processes on other hosts, with default settings."""

import itertools
import json
import signal
import threading
import time

import pytest

from benchmarks.cluster import EmulatedCluster, why_unavailable
from benchmarks.sessions import within
from tests.cluster import Cluster, wait_until
from tests.metrics.test_metrics import SECONDS, exchange_until
from tests.metrics.test_top_local import WHOLE, bpstop, shown
from tf_byteps.errors import RendezvousError
from tf_byteps.metrics import remote_processes, watch
from tf_byteps.metrics.local import LocalJob, LocalSocket
from tf_byteps.metrics.reading import Reading, Silence
from tf_byteps.metrics.remote_processes import RemoteProcess
from tf_byteps.metrics.rows import LOST, RUNS, SILENT
from tf_byteps.metrics.watch import Watch
from tf_byteps.rendezvous.messages import Address
from tf_byteps.rendezvous.relay import Relay, Respondent
from tf_byteps.rendezvous.secret import new_secret

LABELS = ["scheduler", "server 0", "worker 0", "worker 1"]

needs_hosts = pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())


@pytest.fixture
def job(tmp_path):
    """A running job with each process on a host of its own: the `Cluster`, and its hosts."""
    with EmulatedCluster(len(LABELS), None) as hosts:
        places = dict(zip(LABELS, zip(hosts.namespaces, hosts.addresses, strict=True), strict=True))
        stop = tmp_path / "stop"
        with Cluster(exchange_until, args=[str(stop)], place=places.get) as cluster:
            yield cluster, hosts
            stop.touch()
            cluster.wait(SECONDS)


@needs_hosts
def test_all_processes_are_shown_on_the_schedulers_host(job):
    cluster, hosts = job
    on_schedulers, on_workers = within(hosts.namespaces[0]), within(hosts.namespaces[2])
    wait_until(lambda: shown(bpstop(on_schedulers)) == WHOLE, SECONDS)
    view = json.loads(bpstop(on_schedulers).stdout)
    assert all(worker["exchanges_per_second"] > 0 for worker in view["workers"])
    assert view["servers"][0]["memory_bytes"] > 0
    assert view["unseen"] == view["elsewhere"] == []
    assert len({row["address"] for role in WHOLE for row in view[role]}) == len(LABELS)
    # Elsewhere only the own host's.
    done = bpstop(on_workers)
    assert shown(done) == {"workers": ["runs"], "servers": [], "schedulers": []}
    assert {"role": "server", "rank": 0} in json.loads(done.stdout)["elsewhere"]


@needs_hosts
def test_a_stopped_process_on_another_host_is_silent_and_comes_back(job):
    cluster, hosts = job
    room = within(hosts.namespaces[0])
    wait_until(lambda: shown(bpstop(room)) == WHOLE, SECONDS)
    cluster.servers[0].kill(signal.SIGSTOP)
    done = bpstop(room, "--interval", "0.2")
    assert shown(done)["workers"] == ["runs"] * 2 and shown(done)["servers"] == []
    assert json.loads(done.stdout)["unseen"] or json.loads(done.stdout)["elsewhere"]
    cluster.servers[0].kill(signal.SIGCONT)
    wait_until(lambda: shown(bpstop(room)) == WHOLE, SECONDS)


def test_a_process_on_another_host_that_is_gone_is_lost(monkeypatch):
    """What the scheduler tells, look by look."""
    places = {("worker", rank): {} for rank in (0, 1)}
    here = LocalSocket(LocalJob(0, "0" * 16), 1, "0" * 8)
    there = [RemoteProcess(f"host-b, process {number}") for number in (7, 8)]

    def reading(number, *of):
        known = {"process_id": number, "process_start_time_seconds": 1.0}
        return Reading(time.monotonic(), {place: {} for place in of}, known)

    of_first, of_second = (
        reading(process, place) for process, place in zip((7, 8), places, strict=True)
    )
    silent = Silence("has not answered in time")
    reported = iter(
        [
            {there[0]: of_first, there[1]: of_second},
            {there[0]: silent, there[1]: of_second},
            {there[0]: of_first},
        ]
    )
    of_scheduler = reading(1, ("scheduler", 0))
    monkeypatch.setattr(watch, "addresses_of", lambda job: [here])
    monkeypatch.setattr(
        watch, "read_all", lambda asked, seconds: dict.fromkeys(asked, of_scheduler)
    )
    monkeypatch.setattr(watch, "read_elsewhere", lambda socket, seconds: next(reported))
    following = Watch([here.job])
    looks = [[row.state for row in following.look().workers] for _ in range(3)]
    assert looks == [[RUNS, RUNS], [SILENT, RUNS], [RUNS, LOST]]


@pytest.fixture
def relay():
    secret = new_secret()
    asking = Relay("127.0.0.1", secret)
    yield asking, Address("127.0.0.1", asking.port), secret
    asking.close()


def test_a_process_answers_until_it_leaves(relay):
    asking, address, secret = relay
    respondents = [Respondent(address, secret, name, name.encode) for name in ("a", "b")]
    wait_until(lambda: asking.ask("ab", 1) == {"a": b"a", "b": b"b"}, SECONDS)
    respondents[0].close()
    wait_until(lambda: asking.ask("ab", 1) == {"b": b"b"}, SECONDS)
    again = Respondent(address, secret, "a", lambda: b"again")
    wait_until(lambda: asking.ask("a", 1) == {"a": b"again"}, SECONDS)
    again.close()
    respondents[1].close()


def test_nobody_without_the_secret_is_asked(relay):
    asking, address, secret = relay
    stranger = Respondent(address, new_secret(), "a", lambda: b"stranger")
    honest = Respondent(address, secret, "b", lambda: b"b")
    wait_until(lambda: asking.ask("b", 1) == {"b": b"b"}, SECONDS)
    assert asking.ask("a", 0.1) == {}
    stranger.close()
    honest.close()


def test_late_answers_are_not_taken_for_those_to_the_next_question(relay):
    asking, address, secret = relay
    numbers, may_answer = itertools.count(), threading.Event()

    def answer():
        number = next(numbers)
        may_answer.wait(SECONDS)
        return str(number).encode()

    respondent = Respondent(address, secret, "a", answer)
    wait_until(lambda: asking.ask("a", 0.1) == {"a": None}, SECONDS)
    may_answer.set()
    assert asking.ask("a", SECONDS) == {"a": b"1"}
    assert asking.ask("a", SECONDS) == {"a": b"2"}
    respondent.close()


def test_a_process_that_cannot_tell_is_silent(relay):
    asking, address, secret = relay
    respondent = Respondent(address, secret, "a", lambda: 1 / 0)
    wait_until(lambda: asking.ask("a", 0.1) == {"a": None}, SECONDS)
    respondent.close()


def test_an_address_that_is_not_of_this_host():
    with pytest.raises(RendezvousError, match="cannot listen at 192.0.2.1"):
        Relay("192.0.2.1", new_secret())


def test_a_closed_relay_asks_nobody():
    asking = Relay("127.0.0.1", new_secret())
    asking.close()
    assert asking.ask("a", 1) == {}


def test_what_is_too_long_is_left_out(monkeypatch):
    monkeypatch.setattr(remote_processes, "_MOST_BYTES", 10)

    class Large:
        def ask_elsewhere(self, seconds):
            return [("a", b"6bytes"), ("b", b"5byte"), ("c", None), ("d", b"four")]

    page = remote_processes.read_page(remote_processes.page_of(Large()).decode())
    assert page == {
        RemoteProcess("a"): "6bytes",
        RemoteProcess("c"): None,
        RemoteProcess("d"): "four",
    }


@pytest.mark.parametrize("page", ["", "{}x", "[1]", '[["a"]]'])
def test_a_page_that_is_none(page):
    with pytest.raises(ValueError):
        remote_processes.read_page(page)
