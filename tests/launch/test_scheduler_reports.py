"""What bpslaunch understands of the scheduler's lines, however they come."""

import contextlib
import os

import pytest

from tf_byteps.launch.scheduler_reports import SchedulerReports


@contextlib.contextmanager
def _reports():
    reports = SchedulerReports()
    os.set_blocking(reports.descriptor, False)
    try:
        yield reports
    finally:
        reports.close()


def _read(reports):
    with contextlib.suppress(BlockingIOError):
        while reports.read():
            pass


@pytest.mark.parametrize("count", [300, 512, 2000])
def test_all_members_are_understood(count):
    with _reports() as reports:
        names = [str(number) for number in range(count)]
        os.write(reports.scheduler_end, f"members {' '.join(names)}\n".encode())
        _read(reports)
        assert reports.members == set(names)


@pytest.mark.parametrize("piece", [1, 7, 1023, 1024])
def test_lines_come_in_pieces(piece):
    lost = "worker 51 at 10.0.0.7:4711 ended without a goodbye"
    names = [str(number) for number in range(512)]
    text = f"port 4711\njoined\nmembers {' '.join(names)}\nlost {lost}\n".encode()
    with _reports() as reports:
        for begin in range(0, len(text), piece):
            os.write(reports.scheduler_end, text[begin : begin + piece])
            _read(reports)
        assert (reports.port, reports.worker_joined) == (4711, True)
        assert reports.members == set(names)
        assert reports.lost == lost


def test_the_end_is_seen():
    with _reports() as reports:
        os.write(reports.scheduler_end, b"joined\n")
        reports.close_scheduler_end()
        assert reports.read() and not reports.read()
