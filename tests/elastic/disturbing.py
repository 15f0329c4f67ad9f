"""What happens to the workers of an elastic training while it runs, for `worker_kills.train`."""

import signal
import time

import psutil

from tests.elastic.progress import COMMIT

_PAUSE_SECONDS = 1.0


class Disturber:
    """Does something each time training has come so far, and keeps it from going much further.

    Args:
        folder: of the training, a `pathlib.Path`.
        moments: numbers of batches, in order.
        say: called with a sentence each time.
        slack: how many batches further training may go meanwhile.

    Attributes:
        done: how many of the moments are over.
        options: further ones of bpslaunch.
    """

    def __init__(self, folder, moments, say=lambda text: None, slack=6 * COMMIT):
        self.done, self.options = 0, []
        self._folder, self._moments, self._say, self._slack = folder, moments, say, slack
        self._job = self._module = None
        self._seen = 0  # lines of progress, before what is awaited
        self._hold()

    def watch(self, job, module):
        """The training has been started: a `Popen` of bpslaunch, and what the workers run."""
        self._job, self._module = job, module

    def step(self):
        """Looks how far the training has come. To be called often."""
        if self.done < len(self._moments) and self._progress() >= self._moments[self.done]:
            if self.disturb():
                self.done += 1
                self._hold()

    def disturb(self):
        """Called until it returns True: what was to happen has."""
        raise NotImplementedError

    def _hold(self):
        left = self._moments[self.done :]
        new = self._folder / "new-limit.txt"
        new.write_text(str(left[0] + self._slack if left else "inf"))
        new.rename(self._folder / "limit.txt")

    def _lines(self):
        """What the workers have noted, see `progress.Noting`, as lists of words."""
        lines = (self._folder / "progress.txt").read_text().splitlines()
        return [words for words in map(str.split, lines) if len(words) == 4]

    def _progress(self):
        """How many batches are done."""
        return max([int(words[1]) for words in self._lines()], default=0)

    def _holders(self):
        """Numbers of the workers that have had the state."""
        return {int(words[2]) for words in self._lines()}

    def _have_begun(self, size):
        """Numbers of the workers that have begun with so many since `_seen`."""
        return {
            int(words[2])
            for words in self._lines()[self._seen :]
            if words[0] == "begin" and int(words[3]) == size
        }

    def _workers(self):
        """The worker processes that live, by number."""
        found = {}
        try:
            children = psutil.Process(self._job.pid).children(recursive=True)
        except psutil.Error:
            return found
        for process in children:
            try:
                if self._module in process.cmdline()[:4]:
                    found[int(process.environ()["BYTEPS_MEMBER"])] = process
            except (psutil.Error, KeyError):
                continue
        return found


class Killer(Disturber):
    """Kills a worker at each moment, or a little later.

    A worker is spared if it is the only one that has the state.

    Args:
        chance: a `random.Random`, which draws whom, and when exactly.
    """

    def __init__(self, folder, moments, say, chance):
        super().__init__(folder, moments, say)
        self._chance = chance
        self._wait = None

    def disturb(self):
        if self._wait is None:
            self._wait = time.monotonic() + self._chance.uniform(0, _PAUSE_SECONDS)
        if time.monotonic() < self._wait:
            return False
        alive = self._workers()
        if len(self._holders() & set(alive)) < 2:
            return False
        number = self._chance.choice(sorted(alive))
        try:
            alive[number].send_signal(signal.SIGKILL)
        except psutil.Error:
            return False
        self._wait = None
        at = self._progress()
        self._say(f"kill {self.done + 1}: worker {number} of {sorted(alive)}, at batch {at}")
        return True


class Stopper(Disturber):
    """Stops a worker at each moment: its connections stay. It wakes up when the others go on.

    Args:
        numbers: bpslaunch's, of the worker for each moment.
        size: how many workers there are.
    """

    def __init__(self, folder, moments, numbers, size):
        super().__init__(folder, moments)
        self._numbers, self._size = numbers, size
        self._stopped, self._is_awake = None, False

    def disturb(self):
        number = self._numbers[self.done]
        if self._stopped is None:
            alive = self._workers()
            if set(alive) <= self._holders() and len(alive) == self._size:
                self._stopped, self._is_awake = alive[number], False
                self._seen = len(self._lines())
                self._stopped.send_signal(signal.SIGSTOP)
        elif self._is_awake:
            if self._have_begun(self._size) >= set(self._workers()):
                self._stopped = None
                return True
        elif len(self._have_begun(self._size - 1)) == self._size - 1:
            self._seen, self._is_awake = len(self._lines()), True
            self._stopped.send_signal(signal.SIGCONT)
        return False


class Remover(Disturber):
    """Changes the list of hosts at each moment: workers leave, and come.

    Args:
        hosts: what a discovery script prints at first, and after each moment; a string of hosts
            that all have a number of workers.
    """

    def __init__(self, folder, moments, hosts, **options):
        super().__init__(folder, moments, **options)
        self._hosts, self._is_changed = hosts, False
        script = folder / "hosts.sh"
        script.write_text(f"#!/bin/sh\ncat {folder}/hosts.txt\n")
        script.chmod(0o700)
        self.options = ["--host-discovery-script", str(script)]
        self._list(hosts[0])

    def disturb(self):
        hosts = self._hosts[self.done + 1]
        if not self._is_changed:
            self._is_changed = True
            self._seen = len(self._lines())
            self._list(hosts)
            return False
        size = sum(int(host.partition(":")[2]) for host in hosts.split())
        if len(self._have_begun(size)) < size:
            return False
        self._is_changed = False
        return True

    def _list(self, hosts):
        new = self._folder / "new-hosts.txt"
        new.write_text("".join(f"{host}\n" for host in hosts.split()))
        new.rename(self._folder / "hosts.txt")
