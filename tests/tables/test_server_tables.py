"""Several tables on the servers at once: errors, and the order of locks."""

import threading

import numpy as np
import pytest

from tf_byteps.tables import server_tables


class _Table:
    """Notes what happens to it, and fails where it is told to."""

    def __init__(self, name, events, fails=None, error=None):
        self.name, self.mutex = name, threading.Lock()
        self._events, self._fails, self._error = events, fails, error

    def begin_read(self, rows):
        return self._begin(rows * 2)

    def begin_update(self, rows, gradients, rate):
        return self._begin((rows, gradients, rate))

    def _begin(self, result):
        assert self.mutex.locked()
        self._note("begin")

        def end():
            self._note("end")
            return result

        return end

    def _note(self, what):
        self._events.append((what, self.name))
        if what == self._fails:
            raise self._error


def test_all_tables_are_asked_before_one_is_waited_for():
    events = []
    tables = [_Table(name, events) for name in ("b", "a", "c")]
    found = server_tables.read(tables, [np.full(2, number) for number in range(3)])
    assert [rows.tolist() for rows in found] == [[0, 0], [2, 2], [4, 4]]
    assert events == [(what, name) for what in ("begin", "end") for name in ("b", "a", "c")]
    assert not any(table.mutex.locked() for table in tables)


@pytest.mark.parametrize("fails", ["begin", "end"])
def test_an_error_waits_for_all_that_have_begun(fails):
    events = []
    tables = [
        _Table("a", events),
        _Table("b", events, fails, ValueError("NaN")),
        _Table("c", events),
    ]
    with pytest.raises(ValueError, match="NaN"):
        server_tables.update(tables, [[0]] * 3, [[0.0]] * 3, [0.1] * 3)
    begun = ["a", "b"] if fails == "begin" else ["a", "b", "c"]
    ended = ["a"] if fails == "begin" else begun
    assert [name for what, name in events if what == "begin"] == begun
    assert [name for what, name in events if what == "end"] == ended
    assert not any(table.mutex.locked() for table in tables)
