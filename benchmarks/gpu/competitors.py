"""Groups of training processes: one GPU alone, TensorFlow's strategies, and tf_byteps."""

import concurrent.futures
import contextlib
import dataclasses
import json
import pathlib
import tempfile

from benchmarks.jobs import Job, environment
from benchmarks.measure import Runs
from benchmarks.sessions import Session

_PROGRAM = "benchmarks.programs.gpu_training"
# Importing TensorFlow, building and tracing BERT-large take most of it.
JOIN_SECONDS = 240
_MEASURE_SECONDS = 240
_PORT = 29431
# The NVLink multicast of NCCL puts a whole host's GPUs at risk where they are shared.
GPU_SETTINGS = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "NCCL_NVLS_ENABLE": "0"}
# NCCL would find that the emulated hosts are one machine.
NCCL_BETWEEN_HOSTS = {
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_NET": "Socket",
    "NCCL_SOCKET_IFNAME": "eth0",
}
# Of what measures the payload that links carry.
WIRE_CONNECTIONS = 4
# For links of 25 Gbit/s and more, and machines with 16 processor cores for each GPU.
_ENGINE_SETTINGS = {"BYTEPS_IO_THREADS": "8", "BYTEPS_CONNECTIONS_PER_SERVER": "4"}


@dataclasses.dataclass(frozen=True)
class Steps:
    """How long to measure."""

    warmup: int = 5
    steps: int = 5
    rounds: int = 3

    @property
    def total(self):
        return self.warmup + self.steps * self.rounds


class Training:
    """Processes that make a model, and then train it when they are told to.

    Args:
        session: their `Session`.
        strategy: its name, as examples/keras_synthetic_benchmark.py has it.
        options: `model`, `mixed`, `batch`, `dense` and `cpu`.
        gpus: what each process must see.
        tuning: for tf_byteps: what `Job.tuning` returns.
    """

    def __init__(self, session, strategy, options, gpus=1, tuning=None):
        self.tuning = tuning
        self._session = session
        self._arguments = {"strategy": strategy, "gpus": gpus, **options}

    def join(self):
        """Makes and traces the model; must come before all else."""
        about = self._session.call("join", JOIN_SECONDS, **self._arguments)[0]
        self.batch = about["batch"]
        self.gradient_bytes = about["gradient_bytes"]

    def measure(self, steps):
        """Milliseconds of a step as `Runs`: a step lasts until its slowest process has done it."""
        answers = self._session.call("measure", _MEASURE_SECONDS, **dataclasses.asdict(steps))
        return Runs(tuple(max(times) for times in zip(*answers, strict=True)), "ms")

    def look_inside(self, steps, folder=None):
        """What the timelines of some steps say, of the worker whose first gradient is the last."""
        inside = self._session.call("look_inside", _MEASURE_SECONDS, steps=steps, folder=folder)
        return max(inside, key=lambda worker: worker["t_first"])

    def weights_are_equal(self):
        """Whether all processes have the same weights, bit for bit."""
        return len(set(self._session.call("weights", _MEASURE_SECONDS))) == 1

    def leave(self):
        self._session.call("leave", 60)


def join(*trainings):
    """Makes the models of all at once, which takes long and no GPU."""
    with concurrent.futures.ThreadPoolExecutor(len(trainings)) as pool:
        for joined in [pool.submit(training.join) for training in trainings]:
            joined.result()


@contextlib.contextmanager
def alone(options, processes=1, gpus=1):
    """Processes that know nothing of each other, on the first GPUs in turn."""
    environments = [gpu_environment(str(number % gpus)) for number in range(processes)]
    with _session(environments) as session:
        yield Training(session, "none", options)


@contextlib.contextmanager
def mirrored(options, gpus):
    """MirroredStrategy: one process with all GPUs."""
    visible = ",".join(str(number) for number in range(gpus))
    with _session([gpu_environment(visible)]) as session:
        yield Training(session, "mirrored", options, gpus)


@contextlib.contextmanager
def multi_worker(options, cluster, hosts):
    """MultiWorkerMirroredStrategy with NCCL over TCP: a GPU on each emulated host."""
    addresses = [f"{address}:{_PORT}" for address in cluster.addresses[:hosts]]
    environments = []
    for rank in range(hosts):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
        settings = {**NCCL_BETWEEN_HOSTS, "TF_CONFIG": json.dumps(task)}
        environments.append(gpu_environment(str(rank), **settings))
    with _session(environments, cluster.namespaces[:hosts]) as session:
        yield Training(session, "mwms", options)


@contextlib.contextmanager
def byteps(options, gpus, workers, servers, cluster=None, workers_per_host=1, settings=None):
    """BytePSStrategy: a GPU for each worker; where they are fewer, workers of several hosts share
    one. Servers are processes, on emulated hosts of their own; without a cluster there are none."""
    job = Job(
        _PROGRAM,
        workers,
        servers,
        cluster=cluster,
        settings={**_ENGINE_SETTINGS, **(settings or {})},
        workers_per_host=workers_per_host,
        worker_settings=lambda rank: {**GPU_SETTINGS, "CUDA_VISIBLE_DEVICES": str(rank % gpus)},
    )
    with job:
        training = Training(job.workers, "byteps", options, tuning=job.tuning)
        yield training
        training.leave()


def gpu_environment(visible, **variables):
    """The variables of a process that sees some GPUs: their numbers, with commas."""
    return environment(**{**GPU_SETTINGS, "CUDA_VISIBLE_DEVICES": visible, **variables})


@contextlib.contextmanager
def _session(environments, namespaces=None):
    with tempfile.TemporaryDirectory(prefix="byteps_bench_") as folder:
        with Session(_PROGRAM, environments, pathlib.Path(folder), namespaces) as session:
            yield session
