"""Batch scripts that run bpslaunch, and what comes of them."""

import shlex
import sys
import threading

from tests.cluster import wait_until

BPSLAUNCH = (sys.executable, "-m", "tf_byteps.launch")
# Each node is a host of its own: they share this machine.
AS_HOST = ("sh", "-c", 'BYTEPS_HOST_ID=$SLURMD_NODENAME exec "$@"', "sh")
_SECONDS = 400  # machines may be busy


def on_nodes(program, *options):
    """A line of a batch script."""
    return shlex.join([*BPSLAUNCH, *options, *AS_HOST, *program])


def processes_with(slurm, name, value):
    """The processes on nodes for which a variable has a value, whoever has started them."""
    return [
        process for process, variables in slurm.processes() if variables.get(name) == str(value)
    ]


class Running:
    """A batch script that runs meanwhile; use as a context manager, which cancels it."""

    def __init__(self, slurm, folder, *arguments):
        self._slurm, self._folder = slurm, folder
        self._thread = threading.Thread(target=self._run, args=arguments)
        self._result = (None, "", "")

    def _run(self, *arguments):
        self._result = self._slurm.batch(self._folder, *arguments)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        if self._thread.is_alive():
            self._slurm.run("scancel", "--user=root")
        self._thread.join()

    @property
    def out(self):
        file = self._folder / "out.txt"
        return file.read_text() if file.exists() else ""

    @property
    def error(self):
        return (self._folder / "err.txt").read_text()

    def wait_for(self, text, count):
        """Waits until the script has printed a text so often."""
        self.wait_until(lambda: self.out.count(text) >= count)

    def wait_until(self, condition):
        """Waits until it is true, while the script runs."""
        wait_until(lambda: condition() or not self._thread.is_alive(), _SECONDS)
        assert condition(), self.out + self.error

    def wait(self):
        """The exit code."""
        self._thread.join()
        return self._result[0]
