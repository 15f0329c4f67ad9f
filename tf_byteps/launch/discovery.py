"""Which hosts an elastic job may use: what -H says, or what a script prints from time to time."""

import subprocess
import tempfile
import time
from collections.abc import Callable

from tf_byteps.errors import BytePSError
from tf_byteps.launch.hosts import Host

_INTERVAL_SECONDS = 1.0
_LIMIT_SECONDS = 30.0


class FixedHosts:
    """The hosts of -H.

    Args:
        hosts: a list of `Host`.
    """

    may_change = False

    def __init__(self, hosts: list[Host]) -> None:
        self._hosts = hosts

    def poll(self) -> list[Host]:
        """The hosts, as a list of `Host`. Returns at once."""
        return self._hosts

    def close(self) -> None:
        """Ends what runs."""


class HostScript:
    """Runs a script again and again: each line of its output is a host, "name" or "name:slots".

    What it prints counts when it ends with code 0; otherwise, and while it runs, the last hosts do.

    Args:
        command: path of an executable file.
        slots: workers of a host that is printed without a number.
        say: called with sentences for the user.
    """

    may_change = True

    def __init__(self, command: str, slots: int, say: Callable[[str], None]) -> None:
        self._command, self._slots, self._say = command, slots, say
        self._hosts = []
        self._process = self._output = None
        self._next = 0.0
        self._complaint = ""

    def first(self) -> list[Host]:
        """The hosts, when the script has run once.

        Raises:
            BytePSError: it fails.
        """
        self._begin()
        try:
            self._process.wait(_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        self._end()
        if self._complaint:
            raise BytePSError(self._complaint)
        return self._hosts

    def poll(self) -> list[Host]:
        """See `FixedHosts.poll`."""
        now = time.monotonic()
        if self._process is None:
            if now >= self._next:
                self._begin()
        elif self._process.poll() is not None or now > self._next + _LIMIT_SECONDS:
            before = self._complaint
            self._end()
            if self._complaint not in ("", before):
                self._say(f"{self._complaint}; the hosts stay as they were")
        return self._hosts

    def close(self) -> None:
        """See `FixedHosts.close`."""
        if self._process is not None:
            self._process.kill()
            self._end()

    def _begin(self) -> None:
        self._next = time.monotonic()
        self._output = tempfile.TemporaryFile()  # a pipe could be full
        try:
            self._process = subprocess.Popen(
                [self._command],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise BytePSError(
                f"--host-discovery-script {self._command} cannot be started: {error.strerror}"
            ) from None

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        code = self._process.wait()
        self._process = None
        self._next = time.monotonic() + _INTERVAL_SECONDS
        with self._output as file:
            file.seek(0)
            text = file.read().decode(errors="replace")
        if code != 0:
            self._complaint = (
                f"--host-discovery-script {self._command} ended with exit code {code}: "
                f"{text.strip()[-500:]}"
            )
            return
        try:
            self._hosts, self._complaint = self._read(text), ""
        except BytePSError as error:
            self._complaint = str(error)

    def _read(self, text: str) -> list[Host]:
        hosts = {}
        for line in filter(None, map(str.strip, text.splitlines())):
            name, colon, slots = line.partition(":")
            if not name or (colon and not slots.isdecimal()):
                raise BytePSError(
                    f"--host-discovery-script {self._command} printed {line[:100]!r}, which is "
                    f'not of the form "host" or "host:slots"'
                )
            hosts[name] = Host(name, int(slots) if colon else self._slots)
        return [host for host in hosts.values() if host.slots]
