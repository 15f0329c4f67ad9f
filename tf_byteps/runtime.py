"""The life of tf_byteps in a worker process: the only owner of its engine.

`init` brings the process into its job, `shutdown` says goodbye to the others. A process that hosts
a server or the scheduler stays in `shutdown` until the others have left, too (protocol rule 21).
"""

import atexit
import collections
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tf_byteps import _engine, logs, spawned
from tf_byteps.config import OPTIONS, Config
from tf_byteps.errors import (
    BytePSError,
    ConfigError,
    LostProcess,
    RendezvousError,
    StartInterruptedError,
)
from tf_byteps.job import WAIT_SECONDS, JobScheduler, SummationServer, job_description
from tf_byteps.metrics import farewell
from tf_byteps.metrics.collector import scheduler_source, server_source, worker_source
from tf_byteps.metrics.endpoint import Endpoint, open_endpoint
from tf_byteps.metrics.job_sum import job_source
from tf_byteps.rendezvous import client
from tf_byteps.rendezvous.environments import openmpi
from tf_byteps.rendezvous.host import host_id, own_address as host_address
from tf_byteps.rendezvous.member import Member
from tf_byteps.rendezvous.messages import Address, Book
from tf_byteps.rendezvous.roster import RUN_ID
from tf_byteps.rendezvous.secret import new_secret
from tf_byteps.timeline_files import Stay
from tf_byteps.timeline_recorder import Recorder

_logger = logging.getLogger("tf_byteps")


class _SchedulerThread:
    """The scheduler inside a worker's process.

    Its port is closed as soon as the job runs: a later job of these processes takes it again.
    """

    def __init__(self, config: Config) -> None:
        self.scheduler = JobScheduler(config)
        self.address = self.scheduler.address
        self._over = threading.Event()
        # A daemon, so that a worker that dies of an exception does not wait for it.
        self._thread = threading.Thread(target=self._run, name="byteps-scheduler", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.scheduler.run_rendezvous()
        except BytePSError as error:
            _logger.info("%s", error)  # the worker in this process has been told, as all others
            return
        finally:
            self.scheduler.close_rendezvous()
        while not self._over.is_set() and not self.scheduler.wait(WAIT_SECONDS):
            pass

    def join(self, seconds: float) -> bool:
        """Waits until the job is over, at most `seconds`; returns whether it is."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def end_thread(self) -> None:
        """Ends the thread, not the coordinator."""
        self.scheduler.request_stop()
        self._over.set()
        self._thread.join()
        self.scheduler.end_timeline()

    def stop(self) -> None:
        self.end_thread()
        self.scheduler.stop()


class _Runtime:
    """One stay of this process in a job, from `init` to `shutdown`."""

    def __init__(self, config: Config, member: Member | None = None) -> None:
        self.requested = config
        self.member = member
        self.epoch, self._run_id = 0, ""
        self.config = _with_own_secret(_with_op_determinism(config))
        self.rank = 0
        self.local_rank = 0
        self.local_size = 1
        self.worker_hosts = []
        self.server = None
        self._scheduler = None
        self._recorder = None
        self.metrics = None
        self.process = os.getpid()
        self.last_exception = _uncaught_exception()
        try:
            self._start()
        except BaseException:
            self._stop_hosted()
            raise

    def _start(self) -> None:
        if self.config.sources.get("global_size") == openmpi.SOURCE:
            remark = openmpi.binding_remark(os.environ)
            if remark and self.config.local_rank == 0:
                _logger.warning("%s", remark)
        if self.config.hosts_scheduler:
            self._scheduler = _SchedulerThread(self.config)
        if self.config.distributed and self.config.hosts_server:
            self.server = SummationServer(self.config)
        self.metrics = self._open_metrics()
        book = self._join() if self.config.distributed else _book_of_one(self.config)
        logs.configure(self.config, self.rank)
        self.worker_hosts = book.worker_hosts
        self.local_rank, self.local_size = book.local_rank(self.rank), book.local_size(self.rank)
        try:
            job = job_description(book, self.config)
            _engine.start_worker(job, self.rank, self.local_rank, self.local_size)
        except _engine.EngineError as error:
            raise BytePSError(f"worker {self.rank} cannot start: {error}") from error
        self.epoch, self._run_id = book.epoch, book.run_id
        source = "scheduler" if self.config.distributed else "default"
        self.config = self.config.with_shared_values(book.options, source).replace(
            source=source,
            job_id=book.job_id,
            global_rank=self.rank,
            global_size=len(book.worker_hosts),
            local_rank=self.local_rank,
            local_size=self.local_size,
        )
        if self.config.timeline:
            self.start_timeline(self.config.timeline)

    def _open_metrics(self) -> Endpoint | None:
        """Before it joins, as it says then where others read them."""
        sources, job = [worker_source(lambda: self.rank)], None
        if self.server is not None:
            sources.append(server_source(self.server))
        if self._scheduler is not None:
            sources.append(scheduler_source(self._scheduler.scheduler))
            job = job_source(self._scheduler.scheduler, self.config)
        return open_endpoint(self.config, "the worker", sources, job)

    def _join(self) -> Book:
        """Takes part in rendezvous; returns the address book."""
        address = self._scheduler.address if self._scheduler else None
        book, self.rank = client.join(
            self.config,
            self.server.address if self.server else None,
            self.server.start if self.server else None,
            address,
            member=self.member.name if self.member else None,
            metrics=self.metrics.address if self.metrics else None,
        )
        return book

    @property
    def size(self) -> int:
        return self.config.global_size or 1

    def stop(self) -> None:
        """Says goodbye, then waits for those that need what this process hosts."""
        deadline = time.monotonic() + self.config.shutdown_timeout
        told = farewell.counts(_engine.worker_counters())
        _engine.stop_worker()
        self._end_timeline()
        if self.config.summary_file and told:
            farewell.tell(self.config.summary_file, self.rank, told, self.config.timeline)
        if self.metrics is not None:
            self.metrics.close()
        try:
            if not self._others_have_left(deadline):
                _logger.warning(
                    "worker %d ends although other workers have not left %g s after it; "
                    "BYTEPS_SHUTDOWN_TIMEOUT sets how long it waits for them",
                    self.rank,
                    self.config.shutdown_timeout,
                )
        finally:
            self._stop_hosted()

    def _others_have_left(self, deadline: float) -> bool:
        if self.server is not None:
            while not self.server.wait(WAIT_SECONDS):
                if time.monotonic() > deadline:
                    return False
            self.server.stop()  # the scheduler waits until all connections are closed
        if self._scheduler is not None:
            return self._scheduler.join(max(0.0, deadline - time.monotonic()))
        return True

    def start_timeline(self, path: str | os.PathLike[str]) -> None:
        if self._recorder is not None:
            raise BytePSError(
                f"a timeline is being recorded already, for {self._recorder.path}: call "
                f"tf_byteps.stop_timeline() first, or unset BYTEPS_TIMELINE"
            )
        self._recorder = Recorder(path, self.rank, Stay(self._run_id, self.epoch))

    def stop_timeline(self) -> str:
        if self._recorder is None:
            raise BytePSError("no timeline is being recorded: call tf_byteps.start_timeline(path)")
        recorder, self._recorder = self._recorder, None
        return recorder.stop()

    def _end_timeline(self) -> None:
        """One that runs at the end of the job is written; if that fails, the end goes on."""
        if self._recorder is None:
            return
        try:
            self.stop_timeline()
        except OSError as error:
            _logger.error("the timeline cannot be written: %s", error)

    def abandon(self) -> None:
        """Prepares for the end of a process that fails: nobody is told, but no thread stays.

        One that waits inside the engine when the interpreter goes away would abort the process.
        """
        self._end_timeline()
        if self._scheduler is not None:
            self._scheduler.end_thread()

    def _stop_hosted(self) -> None:
        if self.metrics is not None:
            self.metrics.close()
        if self.server is not None:
            self.server.stop()
        if self._scheduler is not None:
            self._scheduler.stop()


_lock = threading.RLock()
_runtime = None
_member = None  # of an elastic job: outlives `_runtime`
_RETRY_SECONDS = 0.5


def init(config: Config | None = None, **overrides: Any) -> None:
    """Brings this process into its job as a worker, and waits until the job is complete.

    With nothing configured it is the only worker and opens no socket. Calling it again with the
    same configuration, or with none, does nothing.

    Args:
        config: a `tf_byteps.Config`. Default: read from the environment.
        **overrides: field values of `Config` that win over `config` or the environment.

    Raises:
        BytePSError: the configuration cannot be used, the other processes cannot be reached, or
            tf_byteps runs with another configuration.

    Example:

    >>> tf_byteps.init()
    >>> tf_byteps.rank(), tf_byteps.size()
    (0, 1)
    """
    global _runtime
    with _lock:
        if _runtime is not None and config is None and not overrides:
            return
        config = _resolve(config, overrides)
        if _runtime is not None:
            _check_same(config)
            return
        logs.configure(config)
        if config.distributed or _is_elastic(config):
            spawned.refuse()
        _runtime = _join_elastic_job(config) if _is_elastic(config) else _Runtime(config)
        if _runtime.config.distributed:
            spawned.note_worker()


def _is_elastic(config: Config) -> bool:
    return config.elastic and config.role == "worker"


def _join_elastic_job(config: Config) -> _Runtime:
    """Tries again when somebody is lost while the workers come together."""
    global _member
    deadline = time.monotonic() + config.elastic_timeout
    _member = _member or Member(config)
    try:
        while True:
            try:
                return _Runtime(config, _member)
            except BytePSError as error:
                if _is_final(error) or time.monotonic() > deadline:
                    raise
                _logger.warning("%s. Trying again", error)
                time.sleep(_RETRY_SECONDS)
    except BaseException:  # the process ends, or does something else
        _member.close()
        _member = None
        raise


def _is_final(error: BytePSError) -> bool:
    """Whether a start that failed would fail again."""
    expected = isinstance(error, (ConfigError, RendezvousError))
    return expected and not isinstance(error, StartInterruptedError)


def shutdown() -> None:
    """Leaves the job: the other workers go on without an error if they do not need this one.

    Waits, at most `Config.shutdown_timeout` seconds, for all other workers to leave if this process
    hosts a server or the scheduler. Without a preceding `init` it does nothing.

    Example:

    >>> tf_byteps.shutdown()
    >>> tf_byteps.is_initialized()
    False
    """
    global _member
    with _lock:
        member, _member = _member, None
    if member is not None:
        member.say_done()
    try:
        leave_epoch()
    finally:
        if member is not None:
            member.close()


def leave_epoch() -> None:
    """Does what `shutdown` does, but an elastic job expects this process to come back."""
    global _runtime
    with _lock:
        stopping, _runtime = _runtime, None
        spawned.forget_worker()
    if stopping is not None:
        stopping.stop()


def epoch() -> int:
    """The membership epoch: a number that differs whenever other workers take part.

    Returns:
        An integer; 0 in a job of one process.
    """
    return _current("epoch").epoch


def coming_change() -> str:
    """Why the workers of an elastic job are about to change, in a sentence.

    Returns:
        "" if they are not. Workers may learn it at different times.
    """
    running = _current("coming_change")
    return running.member.change(running.epoch) if running.member else ""


def is_initialized() -> bool:
    """Whether this process is a worker now: after `init`, before `shutdown`.

    Returns:
        A boolean.

    Example:

    >>> if not tf_byteps.is_initialized():
    ...     tf_byteps.init()
    """
    return _runtime is not None


def rank() -> int:
    """This worker's number in the job, from 0.

    Returns:
        An integer. In a `tf.function` it becomes a constant; `rank_op` does not.

    Raises:
        BytePSError: `init` was not called.

    Example:

    >>> if tf_byteps.rank() == 0:
    ...     model.save("model.keras")
    """
    return _current("rank").rank


def size() -> int:
    """Number of workers in the job.

    Returns:
        See `rank`.

    Raises:
        See `rank`.

    Example:

    >>> learning_rate = 0.01 * tf_byteps.size()
    """
    return _current("size").size


def local_rank() -> int:
    """This worker's number among those on the same machine, from 0.

    Returns:
        See `rank`.

    Raises:
        See `rank`.

    Example:

    >>> port = 9000 + tf_byteps.local_rank()
    """
    return _current("local_rank").local_rank


def local_size() -> int:
    """Number of workers on this machine.

    Returns:
        See `rank`.

    Raises:
        See `rank`.

    Example:

    >>> threads = os.cpu_count() // tf_byteps.local_size()
    """
    return _current("local_size").local_size


def cross_rank() -> int:
    """This machine's number, from 0, among those that have a worker with this `local_rank`.

    Returns:
        See `rank`.

    Raises:
        See `rank`.

    Example:

    >>> is_first_machine = tf_byteps.cross_rank() == 0
    """
    stay = _current("cross_rank")
    return _with_local_rank(stay.worker_hosts[: stay.rank], stay.local_rank)


def cross_size() -> int:
    """Number of machines that have a worker with this worker's `local_rank`.

    Returns:
        See `rank`.

    Raises:
        See `rank`.

    Example:

    >>> machines = tf_byteps.cross_size()
    """
    stay = _current("cross_size")
    return _with_local_rank(stay.worker_hosts, stay.local_rank)


def _with_local_rank(worker_hosts: Sequence[str], local_rank: int) -> int:
    """How many machines have more workers than `local_rank`."""
    numbers = collections.Counter(worker_hosts).values()
    return sum(number > local_rank for number in numbers)


def is_homogeneous() -> bool:
    """Whether all machines have equally many workers.

    Returns:
        A boolean.

    Raises:
        See `rank`.

    Example:

    >>> assert tf_byteps.is_homogeneous()
    """
    return len(set(collections.Counter(_current("is_homogeneous").worker_hosts).values())) == 1


def config() -> Config:
    """The `Config` in use, with what the scheduler has decided filled in."""
    return _current("config").config


def requested_config() -> Config:
    """The `Config` that `init` was called with, without what the scheduler has decided."""
    return _current("requested_config").requested


def server_counters() -> dict[str, Any] | None:
    """What the server in this process has received and sent.

    Returns:
        A dict of totals, with a list of dicts under "tensors"; None if this process hosts no
        server. What ends in `_bytes` are bytes.

    Raises:
        BytePSError: `init` was not called.

    Example:

    >>> tf_byteps.server_counters()["pushed_bytes"]
    1048576
    """
    server = _current("server_counters").server
    return None if server is None else server.counters()


def arrival_lags() -> list[dict[str, float]]:
    """How much later than the first one of its round each worker's tensors are at the servers.

    Of sums and averages. All workers see the same; servers report every
    `Config.heartbeat_interval` seconds.

    Returns:
        A list of dicts, by rank, empty before the first report: "rank", "contributions" (parts of
        tensors), "dropped" (of them: `backup_workers`), and the lag in milliseconds: "mean_ms",
        "recent_ms" (of about the last hundred contributions) and "max_ms".

    Raises:
        BytePSError: `init` was not called.

    Example:

    >>> max(tf_byteps.arrival_lags(), key=lambda worker: worker["recent_ms"])["rank"]
    2
    """
    _current("arrival_lags")
    return _engine.arrival_lags()


def lost_process() -> LostProcess | None:
    """Who has ended the job by being lost. For what catches an error of a training.

    Errors that `Model.fit`, `evaluate` and `predict` raise then have it as `byteps_lost`.

    Returns:
        A `LostProcess`, or `None` if nobody was: the job goes on, or it has failed otherwise.

    Example:

    >>> try:
    ...     model.fit(dataset)
    ... except tf.errors.UnavailableError:
    ...     print(tf_byteps.lost_process())
    LostProcess(role='worker', rank=3, address='', reason='worker 3 on host7 (10.0.0.7) ...')
    """
    lost = _engine.lost_peer()
    if lost is None:
        return None
    role, rank, address = lost
    known_rank = None if role == "scheduler" else rank
    return LostProcess(role, known_rank, address, _engine.worker_failure())


def start_timeline(path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """Begins to record when each part of each tensor goes through which stage, on this worker.

    For all of a job, `BYTEPS_TIMELINE` does it without a change to the program. The recording has
    at most `tf_byteps.timeline.MAX_PARTS` parts of tensors; what comes later is only counted.

    Args:
        path: where `stop_timeline`, or else `shutdown`, writes it. Every worker has its own file:
            "trace.json" becomes "trace.0.json" for rank 0; in a directory (one that exists, or a
            path that ends with "/") the file is "worker-0.json". A further recording of the process
            for the same path gets a number: "worker-0.2.json".
        mark_cycles: accepted for compatibility and not used: there are no cycles.

    Raises:
        BytePSError: `init` was not called, or a timeline is being recorded already.

    Example:

    >>> tf_byteps.start_timeline("timeline/")
    >>> train_step(images, labels)
    >>> tf_byteps.stop_timeline()
    'timeline/worker-0.json'
    """
    del mark_cycles
    with _lock:
        _current("start_timeline").start_timeline(path)


def stop_timeline() -> str:
    """Ends the recording and writes it as a Chrome trace, for Perfetto and `timeline.read`.

    Exchanges that have not ended are left out.

    Returns:
        The path of this worker's file.

    Raises:
        BytePSError: no timeline is being recorded.
        OSError: the file cannot be written; the recording is lost.

    Example: see `start_timeline`.
    """
    with _lock:
        return _current("stop_timeline").stop_timeline()


def own_address() -> str:
    """Where this worker is, as "host:port". The port is that of its server; 0 if it hosts none."""
    running = _current("own_address")
    server = running.server
    return str(server.address if server else Address(host_address(running.config), 0))


def _resolve(given: Config | None, overrides: Mapping[str, Any]) -> Config:
    if given is None:
        resolved = Config.from_environment(**overrides)
    elif isinstance(given, Config):
        resolved = given.replace(**overrides) if overrides else given
    else:
        raise BytePSError(f"config must be a tf_byteps.Config, but is {given!r}")
    if resolved.role in ("server", "scheduler"):
        raise BytePSError(
            f"{resolved.named('role')}, but only a worker trains: start this process with "
            f"python -m tf_byteps.{resolved.role}, or set DMLC_ROLE=worker"
        )
    return resolved


def _check_same(config: Config) -> None:
    running = _runtime.requested
    if config == running:
        return
    differences = [n for n in OPTIONS if getattr(config, n) != getattr(running, n)]
    raise BytePSError(
        "tf_byteps runs already with another configuration: "
        + "; ".join(
            f"{config.named(name)}, not {OPTIONS[name].shown(getattr(running, name))}"
            for name in differences
        )
        + ". Call tf_byteps.shutdown() first"
    )


def _current(function: str) -> _Runtime:
    if _runtime is None:
        raise BytePSError(
            f"tf_byteps.init() has not been called: {function}() is known only after it"
        )
    return _runtime


def op_determinism() -> bool | None:
    """What `tf.config.experimental.enable_op_determinism()` has set; None without TensorFlow."""
    if "tensorflow" not in sys.modules:
        return None
    from tensorflow.python.framework import config as tensorflow_config

    return tensorflow_config.is_op_determinism_enabled()


def _with_op_determinism(config: Config) -> Config:
    """The configuration with what TensorFlow's setting says, if the user gave nothing else.

    A worker also says that it is off: the others may have it on.
    """
    enabled = op_determinism()
    if enabled is None or config.is_set("deterministic"):
        return config
    return config.replace(source="TensorFlow's op determinism", deterministic=enabled)


def _with_own_secret(config: Config) -> Config:
    """The configuration with a secret, if all processes of the job that could need it are here."""
    alone = config.hosts_scheduler and config.size == 1 and config.num_servers == 0
    if not alone or config.has_secret:
        return config
    return config.replace(source="a job in one process", job_secret=new_secret())


def _book_of_one(config: Config) -> Book:
    return Book(
        job_id=config.job_id or "one-worker",
        epoch=0,
        worker_hosts=[host_id(config)],
        server_hosts=[],
        server_endpoints=[],
        server_workers=[],
        coordinator_endpoint=None,
        options=config.shared_values(),
        run_id=RUN_ID,
    )


def _uncaught_exception() -> BaseException | None:
    """The exception that the interpreter has printed on its way out, if one."""
    # Python 3.12 keeps last_value, too.
    return getattr(sys, "last_value", None)


@atexit.register
def _leave_at_exit() -> None:
    """Says goodbye for programs that do not, unless they end because of an error.

    The interpreter sets sys.last_value when it prints an exception that nobody has caught, and does
    so before it runs atexit functions; unlike sys.excepthook nobody replaces that. Such a process
    ends without a goodbye, and the others learn that it has failed (protocol rule 21). In an
    interactive session every mistake at the prompt sets it: there it says nothing.
    """
    running = _runtime
    if running is None or running.process != os.getpid():
        return
    failed = _uncaught_exception() is not running.last_exception
    if failed and not hasattr(sys, "ps1") and not sys.flags.interactive:
        running.abandon()
    else:
        shutdown()


def _forget_in_child() -> None:
    """A forked child is no worker: the engine's threads and connections are its parent's."""
    global _runtime, _member, _lock
    if _runtime is not None and _runtime.metrics is not None:
        _runtime.metrics.forget()
    _runtime = _member = None
    _lock = threading.RLock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_forget_in_child)
