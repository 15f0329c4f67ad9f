import signal
import sys

import psutil
import pytest

from tests.launch.conftest import launch, sshd  # noqa: F401

# Failures show soon.
ENVIRONMENT = {
    "BYTEPS_HEARTBEAT_INTERVAL": "0.2",
    "BYTEPS_HEARTBEAT_TIMEOUT": "2",
    "BYTEPS_CONNECT_TIMEOUT": "10",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


class Job:
    """A running elastic job."""

    def __init__(self, running, stop_file):
        self.running = running
        self._stop_file = stop_file

    def worker(self, number):
        """The `psutil.Process` of the worker that bpslaunch calls by this number."""
        for process in self.running.processes():
            try:
                is_worker = process.environ().get("BYTEPS_MEMBER") == str(number)
                if is_worker and "tf_byteps.launch.guard" not in process.cmdline():
                    return process
            except psutil.Error:
                continue
        raise AssertionError(f"there is no worker {number}: {self.running.out}{self.running.err}")

    def kill(self, number, how=signal.SIGKILL):
        self.worker(number).send_signal(how)

    def finish(self, timeout=60):
        """Lets it end; returns its exit code and all of its output."""
        self._stop_file.touch()
        return self.end(timeout)

    def end(self, timeout=60):
        """The same for a job that ends by itself."""
        code = self.running.wait(timeout)
        return code, self.running.out + self.running.err


@pytest.fixture
def elastic(launch, tmp_path):  # noqa: F811
    """Starts a job without TensorFlow: `elastic("--min-np", "2")`."""

    def start(*arguments, program="count", **variables):
        command = [sys.executable, "-m", "tests.elastic.programs", *program.split()]
        stop_file = tmp_path / "stop"
        environment = {**ENVIRONMENT, "TESTS_STOP_FILE": str(stop_file), **variables}
        given = ["--env", "TESTS_STOP_FILE", *arguments]
        return Job(launch(*given, "--", *command, **environment), stop_file)

    return start
