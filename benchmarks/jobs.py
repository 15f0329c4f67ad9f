"""A tf_byteps job for a benchmark: scheduler, servers, and workers that wait for calls."""

import json
import os
import pathlib
import secrets
import signal
import tempfile
import time

from benchmarks.sessions import ROOT, BenchmarkError, Session, start_process, wait_or_kill
from tf_byteps.launch.hosts import Host
from tf_byteps.launch.plan import TOPOLOGY, Plan
from tf_byteps.rendezvous.secret import new_secret

_END_SECONDS = 20
_TUNING = "by what the workers' links carry"
_COUNTERS_ORDER = {"worker": 0, "server": 1}
_DEFAULTS = {
    "BYTEPS_CONNECT_TIMEOUT": "30",
    "BYTEPS_RENDEZVOUS_TIMEOUT": "60",
    "BYTEPS_OPERATION_TIMEOUT": "300",
    "BYTEPS_SHUTDOWN_TIMEOUT": "15",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


def environment(root=ROOT, **variables):
    """This environment without any job's variables, and with those of a benchmark's process.

    Args:
        root: the tree whose modules it loads.
        **variables: more of them.
    """
    kept = {n: v for n, v in os.environ.items() if n not in TOPOLOGY and n != "BYTEPS_SERVER_ID"}
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    return {**_DEFAULTS, **kept, "PYTHONPATH": path, **variables}


def settings_of(texts):
    """A dictionary of what is given as NAME=VALUE."""
    return dict(text.split("=", 1) for text in texts)


class Job:
    """A running job. Use as a context manager: no process is left at its end.

    Args:
        program: the module whose functions the workers serve, see `benchmarks.sessions`.
        workers: their number.
        servers: the number of server processes.
        colocated: whether each worker's process also runs a server. Default: if there are no
            server processes.
        cluster: an `EmulatedCluster`: worker i runs on host i, server j on host `workers` + j.
            Default: all processes run here.
        settings: more variables for all processes, such as BYTEPS_PARTITION_BYTES.
        workers_per_host: with a cluster: workers i * n to i * n + n - 1 run on host i, and the
            servers on the hosts after those.
        worker_settings: more variables of a worker: a function of its rank that returns a dict.
        root: the tree whose modules all processes load: another checkout, with its libraries.
    """

    def __init__(
        self,
        program,
        workers,
        servers,
        colocated=None,
        cluster=None,
        settings=None,
        workers_per_host=1,
        worker_settings=lambda rank: {},
        root=ROOT,
    ):
        self._root = root
        self._folder = tempfile.TemporaryDirectory(prefix="byteps_bench_")
        self._cluster = cluster
        # As from bpslaunch: without one, processes neither meet across hosts nor share memory.
        self._settings = {"BYTEPS_JOB_SECRET": new_secret(), **(settings or {})}
        if colocated is not None:
            self._settings["BYTEPS_COLOCATED_SERVER"] = str(int(colocated))
        self._processes = []
        self._program = program
        self._worker_settings = worker_settings
        hosts = workers // workers_per_host
        names = [f"emulated{number}" for number in range(hosts + servers)]
        self._plan = Plan(
            workers=workers,
            servers=servers,
            hosts=tuple(Host(n, workers_per_host) for n in names[:hosts])
            if cluster
            else (Host("localhost", workers),),
            server_hosts=tuple(names[hosts:]) if cluster else ("localhost",),
            job_id=secrets.token_hex(8),
            command=(),
        )
        self._hosts = {name: number for number, name in enumerate(names)} if cluster else {}
        self.workers = None

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self._end(0)
            raise
        return self

    def __exit__(self, kind, *_):
        self._end(_END_SECONDS if kind is None else 0)

    def _end(self, seconds):
        """Those that do not end by themselves are killed."""
        if self.workers is not None:
            self.workers.close(seconds)
        deadline = time.monotonic() + seconds
        for process in self._processes:
            wait_or_kill(process, deadline)
        self._folder.cleanup()

    @property
    def pids(self):
        """All processes of the job."""
        return [process.pid for process in self._processes] + self.workers.pids

    @property
    def server_pids(self):
        return [process.pid for process in self._processes[1:]]

    def kill_server(self, rank):
        """As a lost server process."""
        os.kill(self.server_pids[rank], signal.SIGKILL)

    def tuning(self):
        """What the scheduler has logged of the links and what follows from them, or ""."""
        logged = (self._path / "scheduler.log").read_text().splitlines()
        return next((line[line.index(_TUNING) :] for line in logged if _TUNING in line), "")

    def finish(self):
        """Ends the job; returns each server's counters, those of colocated servers first."""
        self.workers.call("leave", timeout=60)
        self.workers.close()
        deadline = time.monotonic() + _END_SECONDS
        for process in self._processes:
            wait_or_kill(process, deadline)
        folders = sorted(self._path.glob("counters-*"))
        files = [next(folder.glob("*.json"), None) for folder in folders]
        if None in files:
            raise BenchmarkError(f"servers have not written their counters: {folders}")
        return [json.loads(file.read_text()) for file in files]

    @property
    def _path(self):
        return pathlib.Path(self._folder.name)

    def _start(self):
        address = self._cluster.addresses[0] if self._cluster else "127.0.0.1"
        port = self._start_scheduler(address)
        for task in self._plan.server_tasks(address, port):
            variables = self._variables(task)
            self._start_process(task, variables)
        tasks = self._plan.worker_tasks(address, port)
        self.workers = Session(
            self._program,
            [self._variables(task) for task in tasks],
            self._path,
            [self._namespace(task) for task in tasks],
            root=self._root,
        )

    def _start_scheduler(self, address):
        readable, writable = os.pipe()
        task = self._plan.scheduler_task(address, writable)
        variables = {**self._settings, **task.variables, "BYTEPS_LOG_LEVEL": "info"}
        self._start_process(task, environment(self._root, **variables), (writable,))
        os.close(writable)
        with open(readable) as reports:
            line = reports.readline()
            if not line.startswith("port "):
                raise BenchmarkError(f"no scheduler:\n{(self._path / 'scheduler.log').read_text()}")
        return int(line.split()[1])

    def _start_process(self, task, variables, pass_fds=()):
        log = self._path / f"{task.label.replace(' ', '-')}.log"
        self._processes.append(
            start_process(
                task.command,
                variables,
                log,
                self._namespace(task),
                pass_fds=pass_fds,
                cwd=self._root,
            )
        )

    def _namespace(self, task):
        if self._cluster is None:
            return None
        return self._cluster.namespaces[self._hosts.get(task.host, 0)]

    def _variables(self, task):
        # The counters' folders sort in the order of hosts: workers, then servers.
        counters = self._path / f"counters-{_COUNTERS_ORDER[task.role]}-{task.number:03d}"
        settings = dict(self._settings)
        if task.role == "worker":
            settings.update(self._worker_settings(task.number))
        return environment(
            self._root, **settings, **task.variables, BYTEPS_SERVER_STATS_FILE=f"{counters}/"
        )
