"""What is decided has no lock, thread, connection or clock, and calls go one way."""

import pathlib
import re

import pytest

from tools.call_circles import circles

_ROOT = pathlib.Path(__file__).resolve().parents[2]
#: Folders that decide, and how many sources each has at least.
_STATES = {
    "cc/worker/state": 30,
    "cc/coordinator/state": 25,
    "cc/server/state": 12,
    "cc/staging/state": 12,
}
_INCLUDE = re.compile(r'^#include ["<]([^">]+)[">]', re.MULTILINE)
#: Headers by which something waits, sends, logs, or asks for the time.
_EFFECTS = re.compile(
    r"cc/(van|coordinator|server|worker|staging)/(?!state/).*"
    r"|cc/base/(clock|event_record|guarded|logging|mutex|periodic_thread|schedule|thread|work_threads)\.h"
    r"|atomic|chrono|condition_variable|ctime|future|iostream|mutex|shared_mutex|thread|time\.h"
)

#: An object's own mutex, as its files take it.
_LOCKS = re.compile(r"\b(MutexLock lock\((ready_)?mutex_\)|Transaction transaction\(this\))")


def _reached(path, seen):
    """All headers that a source includes, and by which way."""
    for header in _INCLUDE.findall(path.read_text()):
        if header in seen:
            continue
        seen[header] = path
        if header.startswith("cc/"):
            _reached(_ROOT / header, seen)
    return seen


@pytest.mark.parametrize("folder", _STATES)
def test_a_state_knows_no_lock_thread_connection_clock_or_log(folder):
    sources = [path for path in (_ROOT / folder).iterdir() if path.suffix in (".h", ".cc")]
    assert len(sources) > _STATES[folder]
    for source in sources:
        if source.name.endswith("_test.cc"):
            continue
        for header, by in _reached(source, {}).items():
            assert not _EFFECTS.fullmatch(header), (
                f"{source.name} reaches {header}, which {by.name} includes"
            )


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        (
            "cc/worker",
            [
                "timeline.cc",
                "worker.cc",
                "worker_connections.cc",
                "worker_control.cc",
                "worker_exchanges.cc",
                "worker_transaction.cc",
            ],
        ),
        ("cc/coordinator", ["absent_peers.cc", "control_session.cc", "coordinator.cc"]),
        ("cc/server/state", []),
        (
            "cc/staging",
            [
                "compiled_runs.cc",
                "decode_queue.cc",
                "gpu_exchanger.cc",
                "host_channel.cc",
                "local_group.cc",
                "local_group_reports.cc",
                "local_group_tensors.cc",
                "local_group_transaction.cc",
                "local_link.cc",
                "stream_copies.cc",
            ],
        ),
    ],
)
def test_only_shells_lock(folder, expected):
    """The object around a state has its mutex; what has one of its own is listed, too."""
    assert expected == [
        path.name
        for path in sorted((_ROOT / folder).rglob("*.cc"))
        if _LOCKS.search(path.read_text())
    ]


#: How many files of a folder may be in circles of calls. No number goes up.
@pytest.mark.parametrize(
    ("folder", "most"),
    [("cc/worker", 0), ("cc/coordinator", 0), ("cc/server", 0), ("cc/staging", 0)],
)
def test_calls_between_the_files_of_a_class_go_one_way(folder, most):
    found = list(circles(_ROOT / folder))
    assert sum(len(files) for _, files in found) == most, found


def test_a_circle_of_calls_is_found(tmp_path):
    (tmp_path / "one.cc").write_text("void Room::Open() {\n  Close();\n}\n")
    (tmp_path / "two.cc").write_text("int Room::Close() {\n  return this->Open();\n}\n")
    (tmp_path / "three.cc").write_text(
        "void Room::Paint() {\n  // Open();\n  door_.Open();\n  other->Close();\n  Open();\n}\n"
    )
    assert list(circles(tmp_path)) == [("Room", ["one.cc", "two.cc"])]
