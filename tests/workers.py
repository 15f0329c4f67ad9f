"""Runs functions in real worker processes that find each other through TF_CONFIG.

Starting TensorFlow costs seconds, so one group of processes runs several functions ("scenarios") of
a program file, one after the other, and hands back what each returned on each worker.
"""

import contextlib
import dataclasses
import json
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import time
import traceback

from tests import fork_server, quick_start

_HERE = os.path.dirname(os.path.abspath(__file__))
_ENVIRONMENT = {
    "BYTEPS_OPERATION_TIMEOUT": "60",
    "PYTHONPATH": os.pathsep.join(
        filter(None, [os.path.dirname(_HERE), os.environ.get("PYTHONPATH")])
    ),
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


@dataclasses.dataclass
class Failure:
    """A scenario that ended in an exception."""

    kind: str
    message: str
    trace: str


class Group:
    """What the scenarios returned: `group[scenario]` has the workers' results, by rank.

    Attributes:
        size: the number of processes.
    """

    def __init__(self, results, logs):
        self.size = len(results)
        self._results = results
        self._logs = logs

    def __getitem__(self, scenario):
        results = [worker.get(scenario) for worker in self._results]
        for rank, worker in enumerate(self._results):
            assert scenario in worker, (
                f"worker {rank} did not get to {scenario}:\n{self._logs[rank]}"
            )
        # Of all workers: the first to fail need not be the first in rank.
        failures = [
            f"worker {rank}, {scenario}:\n{result.trace}"
            for rank, result in enumerate(results)
            if isinstance(result, Failure)
        ]
        assert not failures, "\n".join(failures)
        return results

    def of_worker(self, rank, scenario):
        """What it returned on one worker, when others may have been killed."""
        assert scenario in self._results[rank], self._logs[rank]
        return self._results[rank][scenario]

    def finished(self, scenario):
        """Whether all workers have come to its end, and none was killed or failed."""
        results = [worker.get(scenario) for worker in self._results]
        return not any(result is None or isinstance(result, Failure) for result in results)

    def failures(self, scenario):
        """The `Failure` of every worker; fails the test if one did not fail."""
        results = [worker.get(scenario) for worker in self._results]
        assert all(isinstance(result, Failure) for result in results), (results, self._logs)
        return results


def scenario(function, **arguments):
    """The name of a scenario: a function of a program, and its arguments. See `run`."""
    return f"{function}={json.dumps(arguments)}"


def run(program, scenarios, num_workers, timeout=600, of_rank=None, **environment):
    """Runs scenarios in `num_workers` processes.

    Args:
        program: path of a Python file.
        scenarios: names of its functions, or `name=json` with a dictionary of keyword arguments.
        num_workers: the number of processes; with 0 there is one, without any cluster variable.
        timeout: seconds until all are killed.
        of_rank: a function of the rank: the environment variables of that process alone, as a dict.
        **environment: more environment variables.

    Returns:
        A `Group`.
    """
    tasks = _cluster(num_workers)
    deadline = time.monotonic() + timeout
    # Files, because a pipe that nobody reads would hold a worker up, and with it all others.
    with contextlib.ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in tasks]
        errors = [stack.enter_context(tempfile.TemporaryFile()) for _ in tasks]
        processes = [
            fork_server.popen(
                [sys.executable, "-m", "tests.workers", os.path.abspath(program), *scenarios],
                env={
                    **os.environ,
                    **_ENVIRONMENT,
                    **task,
                    **environment,
                    **(of_rank(rank) if of_rank else {}),
                },
                stdout=outputs[rank],
                stderr=errors[rank],
            )
            for rank, task in enumerate(tasks)
        ]
        for process in processes:
            try:
                process.wait(timeout=max(1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        logs = [_content(file).decode(errors="replace")[-4000:] for file in errors]
        return Group([_results(_content(file)) for file in outputs], logs)


def _cluster(num_workers):
    """The cluster variable of each process."""
    if num_workers == 0:
        return [{}]
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(num_workers)]
    addresses = [f"127.0.0.1:{server.getsockname()[1]}" for server in held]
    for server in held:
        server.close()
    return [
        {
            "TF_CONFIG": json.dumps(
                {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
            )
        }
        for rank in range(num_workers)
    ]


def _content(file):
    file.seek(0)
    return file.read()


def _results(output):
    results = {}
    while len(output) >= 8:
        length = int.from_bytes(output[:8], "little")
        if len(output) < 8 + length:
            break  # killed while it wrote
        name, result = pickle.loads(output[8 : 8 + length])
        results[name] = result
        output = output[8 + length :]
    return results


def worker_main(program, scenarios):
    """The worker process: writes each scenario's name and result to its standard output."""
    # What the program prints must not mix with the results.
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    quick_start.leave_out_packages()
    sys.path.append(os.path.dirname(program))
    module = __import__(os.path.splitext(os.path.basename(program))[0])
    for scenario in scenarios:
        name, _, arguments = scenario.partition("=")
        try:
            result = getattr(module, name)(**json.loads(arguments or "{}"))
        except Exception as error:
            result = Failure(type(error).__name__, str(error), traceback.format_exc())
        message = pickle.dumps((scenario, result))
        results.write(len(message).to_bytes(8, "little") + message)
        results.flush()
    import tf_byteps

    tf_byteps.shutdown()


if __name__ == "__main__":
    # This folder comes last on the path: those in it may have the names of installed packages.
    sys.path.append(_HERE)
    # By the name that tests import: results are pickled, and a `Failure` belongs to its module.
    from tests import workers

    workers.worker_main(sys.argv[1], sys.argv[2:])
