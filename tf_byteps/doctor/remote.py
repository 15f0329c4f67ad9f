"""This side of an agent: sends orders to a host and waits for the answers, never for long."""

from __future__ import annotations

import collections
import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from typing import IO, Any

from tf_byteps.doctor.agent import MARK
from tf_byteps.errors import BytePSError
from tf_byteps.launch.hosts import Host
from tf_byteps.launch.launcher import Launcher
from tf_byteps.launch.plan import Task

_END_SECONDS = 1.0
_SSH_FAILED = 255


class HostError(BytePSError):
    """A host cannot be examined.

    Attributes:
        is_unreachable: ssh failed; otherwise the host could not run tf_byteps.
    """

    def __init__(self, reason: str, is_unreachable: bool) -> None:
        super().__init__(reason)
        self.is_unreachable = is_unreachable


class Remote:
    """The agent of one host. Close it, and the process ends.

    Args:
        launcher: starts it, as bpslaunch starts processes.
        host: where.
        number: of the host.

    Raises:
        BytePSError: not even ssh can be started.
    """

    def __init__(self, launcher: Launcher, host: Host, number: int) -> None:
        self.host = host
        command = (sys.executable, "-m", "tf_byteps.doctor.agent")
        task = Task("doctor", number, host.name, command, {})
        self._process = launcher.start_without_guard(task)
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._errors: collections.deque[str] = collections.deque(maxlen=5)
        self._sent = 0
        self._readers = [
            threading.Thread(target=read, args=(pipe,), daemon=True)
            for read, pipe in (
                (self._read_answers, self._process.stdout),
                (self._read_errors, self._process.stderr),
            )
        ]
        for reader in self._readers:
            reader.start()

    def ask(self, name: str, timeout: float, /, **arguments: Any) -> Any:
        """Sends an order; returns the answer.

        Args:
            name: of the order.
            timeout: seconds to wait for it.
            arguments: of the order.

        Raises:
            HostError: the host does not answer any more.
            BytePSError: it answers that the order failed, and why.
        """
        self._sent += 1
        order = {"number": self._sent, "name": name, "arguments": arguments}
        with contextlib.suppress(BrokenPipeError):  # the end of its answers says it, too
            self._process.stdin.write(f"{json.dumps(order)}\n".encode())
        deadline = time.monotonic() + timeout
        while True:
            try:
                answer = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                waited = f"{self.host.name} has not answered in {max(0.0, timeout):.0f} s"
                raise HostError(waited, is_unreachable=True) from None
            if answer is None:
                raise self._why_ended()
            if answer[MARK] != self._sent:
                continue  # to an order that was given up
            if "error" in answer:
                raise BytePSError(answer["error"])
            return answer["value"]

    def close(self) -> None:
        """Ends the agent. Waits for it for a second at most."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()  # ssh: the far end sees its input end
            self._process.wait()
        for reader in self._readers:
            reader.join(_END_SECONDS)
        for pipe in (self._process.stdout, self._process.stderr):
            pipe.close()

    def _read_answers(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            with contextlib.suppress(ValueError):
                answer = json.loads(line)
                if isinstance(answer, dict) and MARK in answer:
                    self._answers.put(answer)
        self._answers.put(None)

    def _read_errors(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            if text := line.decode(errors="replace").strip():
                self._errors.append(text)

    def _why_ended(self) -> HostError:
        self._answers.put(None)  # for whoever asks next
        self._readers[1].join(_END_SECONDS)
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        said = self._errors[-1] if self._errors else f"the process ended with exit code {code}"
        return HostError(said, is_unreachable=code == _SSH_FAILED)
