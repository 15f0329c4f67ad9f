"""Tables on the servers whose layers are gone (protocol rule 41)."""

import os
import types

import numpy as np
import pytest

from tests import workers
from tf_byteps import _engine, runtime
from tf_byteps.tables import elastic_tables, releasing, server_requests

pytestmark = pytest.mark.time_limit(420)

PROGRAM = os.path.join(os.path.dirname(__file__), "releasing_programs.py")


@pytest.fixture(scope="module")
def two():
    return workers.run(PROGRAM, ["one_after_the_other", "one_worker_keeps_it"], 2)


def test_servers_free_the_table_of_each_model_and_the_next_begins_anew(two):
    for found in two["one_after_the_other"]:
        first = found[0][2]
        assert (first != 1).all()  # trained
        for held, afterwards, rows in found:
            assert 1 <= held < 2
            assert afterwards < 0.1
            np.testing.assert_array_equal(rows, first)


def test_a_table_stays_while_one_worker_has_it(two):
    (held, freed), (its_held, its_freed, before, between, message) = two["one_worker_keeps_it"]
    assert 1 <= held < 2 and 1 <= its_held < 2
    assert freed < 0.1 and its_freed < 0.1
    np.testing.assert_array_equal(between, before)
    assert "worker 0 has released the table, and all workers change a table together" in message


class _Servers:
    """Stands for the servers of a table, which are asked to free it."""

    def __init__(self):
        self.is_there, self.is_over, self.asked = True, False, 0
        self.error = None

    def release(self):
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.is_over


@pytest.fixture
def servers():
    return _Servers()


@pytest.fixture
def release(servers):
    table = types.SimpleNamespace(
        name="users", is_there=lambda: servers.is_there, release=servers.release
    )
    return releasing._Release(table, 0)


def test_a_worker_says_it_more_and_more_rarely_until_nobody_has_the_table(servers, release):
    times = [0.0]
    for _ in range(12):
        assert release.step(times[-1])
        times.append(release.due)
    assert servers.asked == 12
    pauses = np.diff(times)
    assert (np.diff(pauses) >= 0).all() and pauses[0] < 1 and pauses[-1] == 60
    servers.is_over = True
    assert not release.step(0)
    assert servers.asked == 13


@pytest.mark.parametrize(
    "states, is_over",
    [
        ("WHOLE WHOLE", False),  # another worker has the table
        ("FREED FREED", True),
        ("FREED LOST", True),  # the second one is on a server that has not heard of others
        ("FREED WHOLE", True),  # it has heard this worker now; others say so themselves
        ("WHOLE LOST", False),  # it may be filled again
        ("WHOLE FILLING", False),
        ("NOT_MADE LOST", False),
        ("LOST LOST", True),  # nobody can fill it again
    ],
)
def test_a_worker_says_it_no_more_when_no_rows_can_come(states, is_over):
    found = [getattr(server_requests, state) for state in states.split()]
    assert releasing.is_over(found) == is_over


def test_an_error_of_the_engine_is_not_the_end(servers, release):
    servers.error = _engine.EngineError("a server is lost")
    assert release.step(0)
    servers.error, servers.is_over = None, True
    assert not release.step(0)
    assert servers.asked == 2


def test_nothing_is_said_after_the_session(servers, release):
    servers.is_there = False
    assert not release.step(0)
    assert servers.asked == 0


@pytest.mark.parametrize("had_tables", [True, False])
def test_servers_drop_what_they_have_kept_of_the_last_table(monkeypatch, had_tables):
    """Of an elastic job, in which nobody has a table any more."""
    asked = []
    monkeypatch.setattr(elastic_tables, "_tables", [lambda: None] if had_tables else [])
    monkeypatch.setattr(elastic_tables, "_ask", lambda *given: asked.append(given))
    monkeypatch.setattr(runtime, "rank", lambda: 0)
    monkeypatch.setattr(runtime, "session", lambda what: types.SimpleNamespace(num_servers=2))
    elastic_tables.begin({})
    assert asked == [(server, server_requests.DROP) for server in range(2) if had_tables]
