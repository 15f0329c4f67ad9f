"""One session of this process in a job, with the server and the scheduler that it may host."""

import logging
import os
import sys
import threading
import time

from tf_byteps import _engine, logs, step_counters
from tf_byteps.config import Config
from tf_byteps.engine_options import job_description
from tf_byteps.environments import openmpi
from tf_byteps.errors import BytePSError
from tf_byteps.job import WAIT_SECONDS, JobScheduler, SummationServer
from tf_byteps.metrics import exit_summary, record
from tf_byteps.metrics.endpoint import Endpoint, open_endpoint
from tf_byteps.metrics.sources import scheduler_source, server_source, worker_source
from tf_byteps.rendezvous import client
from tf_byteps.rendezvous.host import host_id
from tf_byteps.rendezvous.member import Member
from tf_byteps.rendezvous.messages import Book
from tf_byteps.rendezvous.roster import run_id
from tf_byteps.rendezvous.secret import new_secret
from tf_byteps.timeline import files as timeline_files
from tf_byteps.timeline.worker_recorder import Recorder

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


class Session:
    """One session of this process in a job, from `init` to `shutdown`."""

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
        self._recorder: Recorder | None = None
        self._recording = threading.Lock()  # guards the recorder: bpstop asks in other threads
        self._is_started = False
        self.metrics = None
        self.process = os.getpid()
        self.last_exception = uncaught_exception()
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
        self._book, self.worker_hosts = book, book.worker_hosts
        self.metrics.answer_scheduler(self.config, book, self.rank)
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
        self._is_started = True

    def _open_metrics(self) -> Endpoint:
        """Before it joins, as it says then where others read them."""
        sources, scheduler = [worker_source(lambda: (self._book, self.rank))], None
        if self.server is not None:
            sources.append(server_source(self.server))
        if self._scheduler is not None:
            scheduler = self._scheduler.scheduler
            sources.append(scheduler_source(scheduler))
        for_user = {record.PATH: self._record}
        return open_endpoint(self.config, "the worker", sources, scheduler, for_user)

    @property
    def num_servers(self) -> int:
        """How many servers the job has, also if some are lost."""
        return len(self._book.server_endpoints)

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

    def stop(self, lost: str = "") -> None:
        """Says goodbye, then waits for those that need what this process hosts.

        Args:
            lost: see `leave_epoch`.
        """
        deadline = time.monotonic() + self.config.shutdown_timeout
        reported = exit_summary.counts(_engine.worker_counters())
        _engine.stop_worker(lost)
        self._end_timeline()
        step_counters.reset()
        if self.config.summary_file and reported:
            exit_summary.report(self.config.summary_file, self.rank, reported, self.config.timeline)
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

    def start_timeline(self, path: str | os.PathLike[str]) -> Recorder:
        with self._recording:
            if self._recorder is not None:
                raise BytePSError(
                    f"a timeline is being recorded already, for {self._recorder.path}: call "
                    f"tf_byteps.stop_timeline() first, or unset BYTEPS_TIMELINE"
                )
            session = timeline_files.Session(self._run_id, self.epoch)
            self._recorder = Recorder(path, self.rank, session)
            return self._recorder

    def stop_timeline(self) -> str:
        with self._recording:
            if self._recorder is None:
                raise BytePSError(
                    "no timeline is being recorded: call tf_byteps.start_timeline(path)"
                )
            recorder, self._recorder = self._recorder, None
            return recorder.stop()

    def _record(self, query: str) -> bytes:
        """For `bpstop --record`, in a thread of its request. The program may end it before."""
        folder, seconds = record.read_query(query)
        if not self._is_started:
            raise BytePSError("this worker has not joined its job yet")
        mine = self.start_timeline(f"{folder}/")
        time.sleep(seconds)
        if self._recorder is mine:
            self.stop_timeline()
        return mine.path.encode()

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


def op_determinism() -> bool | None:
    """What `tf.config.experimental.enable_op_determinism()` has set; None without TensorFlow."""
    if sys.modules.get("tensorflow") is None:
        return None
    from tf_byteps.private.tensorflow import framework_config as tensorflow_config

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
        run_id=run_id(),
    )


def uncaught_exception() -> BaseException | None:
    """The exception that the interpreter has printed at its end, if one."""
    # Python 3.12 keeps last_value, too.
    return getattr(sys, "last_value", None)
