"""Sockets of other users that look like a job's, which root's bpstop sees."""

import contextlib
import io
import os
import shutil
import subprocess

import pytest
from rich.console import Console

from tf_byteps.config import Config
from tf_byteps.metrics import finding
from tf_byteps.metrics.endpoint import serving
from tf_byteps.metrics.local import LocalJob, LocalSocket, local_jobs, own_socket
from tf_byteps.metrics.reading import read_all
from tf_byteps.metrics.remote_processes import read_page
from tf_byteps.metrics.view import draw
from tf_byteps.metrics.watch import Watch

_NOBODY = 65534
_PYTHON = shutil.which("python3", path="/usr/bin:/bin")
_SECONDS = 60
_EVENT = "\x1b[31mevil\a\x9b2J"
_PEER = "x\x1b[2J\x1b]0;title"

# A process that answers anybody with an event of a scheduler.
_SOCKET = """
import socket, sys
labels = f'event="{sys.argv[2]}",peer="{sys.argv[3]}",job_id="j",role="scheduler",rank="0"'
body = f"tf_byteps_scheduler_event_timestamp_seconds{{{labels}}} 1\\n"
listener = socket.socket(socket.AF_UNIX)
listener.bind("\\0" + sys.argv[1])
listener.listen()
print("listens", flush=True)
while True:
    peer, _ = listener.accept()
    with peer:
        peer.recv(1000)
        peer.sendall(f"HTTP/1.0 200 OK\\r\\n\\r\\n{body}".encode())
"""


@contextlib.contextmanager
def _strangers_socket():
    where = LocalSocket(LocalJob(_NOBODY, "e" * 16), 1, "f" * 8)
    command = [_PYTHON, "-c", _SOCKET, where.name[1:], _EVENT, _PEER]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, user=_NOBODY, group=_NOBODY, extra_groups=[], cwd="/"
    ) as process:
        try:
            assert process.stdout.readline() == b"listens\n"
            yield where
        finally:
            process.kill()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user, and sees it")
@pytest.mark.skipif(_PYTHON is None, reason="no Python that other users can run")
def test_a_strangers_socket_writes_nothing_to_the_terminal_and_hides_no_job(monkeypatch):
    own = own_socket(Config()).job
    with _strangers_socket() as where:
        # Other jobs of root may run on this machine.
        known = own, where.job
        monkeypatch.setattr(
            finding, "local_jobs", lambda: {j: s for j, s in local_jobs().items() if j in known}
        )
        reading = read_all([where], _SECONDS)[where]
        ((_, labels),) = reading.places["scheduler", 0]
        assert labels == ("?[31mevil??2J", "x?[2J?]0;title")
        written = io.StringIO()
        Console(file=written, width=200).print(draw(Watch([where.job]).look()))
        assert "evil" in written.getvalue() and written.getvalue().isascii()
        assert not set(written.getvalue()) & {"\x1b", "\a"}
        # A job of one's own comes first; otherwise root may look at that of another.
        assert finding.find_here() == where.job
        with serving(Config(), "the worker", [lambda: []]):
            assert finding.find_here() == own


def test_names_of_processes_on_other_hosts_are_printable():
    (process,) = read_page('[["evil\\u001b[2J, process 1", null]]')
    assert process.name == "evil?[2J, process 1"
