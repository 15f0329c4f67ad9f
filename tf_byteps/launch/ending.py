"""How a job's processes are made to end: they are asked, and killed when they take too long."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

from tf_byteps.launch.output import Screen
from tf_byteps.launch.running_task import RunningTask, alive

# From killing a process to no longer waiting for it.
LAST_WAIT_SECONDS = 3.0


class Ending:
    """The end of a job's processes.

    Args:
        tasks: the processes, which may become more and fewer meanwhile.
        screen: where it says whom it kills.
        grace: seconds from asking a process to end to killing it.

    Attributes:
        interrupted_by: the signal, for which the workers are asked to end, or 0.
    """

    def __init__(self, tasks: Sequence[RunningTask], screen: Screen, grace: float) -> None:
        self.interrupted_by = 0
        self._tasks, self._screen, self._grace = tasks, screen, grace
        self._since: float | None = None
        self._killed_since: float | None = None
        self._apart: list[tuple[RunningTask, float]] = []  # each with when it is killed

    @property
    def has_begun(self) -> bool:
        """Whether processes have been asked to end."""
        return self._since is not None

    def ask(self, number: int, role: str | None = None) -> None:
        """Asks processes to end, all or those of a role; who does not is killed later."""
        if self._since is None:
            self._since = time.monotonic()
        for running in alive(self._tasks, role):
            running.tell(number)

    def ask_apart(self, running: RunningTask) -> None:
        """Asks one process to end while the others go on. One that is stopped is killed later."""
        running.tell(signal.SIGTERM)
        self._apart.append((running, time.monotonic() + self._grace))

    def interrupt(self, number: int) -> None:
        """A signal has come: asks processes to end; kills them if it is not the first."""
        if self.interrupted_by:
            self._screen.say("killing all processes")
            self.kill()
            return
        self.interrupted_by = number
        name = signal.Signals(number).name
        self._screen.say(f"{name}: ending all processes; a second signal kills them")
        # They tell of workers that leave without a goodbye, as those were asked to.
        for running in self._tasks:
            if running.task.role != "worker":
                for stream in running.streams:
                    stream.hide()
        # The others are needed by workers that finish a step and save before they end.
        self.ask(number, "worker" if alive(self._tasks, "worker") else None)

    def escalate(self) -> None:
        """Kills who has been asked to end, and has had the time for it. To be called often."""
        now = time.monotonic()
        self._kill_apart(now)
        if self.interrupted_by and not alive(self._tasks, "worker"):
            self._ask_rest(now)
        if self._killed_since is not None:
            if now - self._killed_since > LAST_WAIT_SECONDS:
                for running in alive(self._tasks):  # the shell of a host that answers no more
                    running.process.kill()
        elif self._since is not None and now - self._since > self._grace:
            self._say_late([r for r in alive(self._tasks) if r.told_to_end])
            self.kill(only_told=True)

    def kill(self, only_told: bool = False) -> None:
        """Kills all processes, or those that have been asked to end."""
        self._killed_since = self._killed_since or time.monotonic()
        for running in alive(self._tasks):
            if running.told_to_end or not only_told:
                running.tell(signal.SIGKILL)

    def _kill_apart(self, now: float) -> None:
        late = alive(running for running, kill_at in self._apart if now > kill_at)
        self._apart = [(running, kill_at) for running, kill_at in self._apart if now <= kill_at]
        self._say_late(late)
        for running in late:
            running.tell(signal.SIGKILL)

    def _say_late(self, late: Sequence[RunningTask]) -> None:
        names = ", ".join(running.task.label for running in late)
        if names:
            self._screen.say(f"killing what has not ended in {self._grace:g} s: {names}")

    def _ask_rest(self, now: float) -> None:
        """The workers have ended: asks those that they needed, which get a grace of their own."""
        rest = [running for running in alive(self._tasks) if not running.told_to_end]
        for running in rest:
            running.tell(signal.SIGTERM)
        if rest:
            self._since, self._killed_since = now, None
