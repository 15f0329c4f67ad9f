"""The scheduler: `python -m tf_byteps.scheduler`, configured by environment variables.

Ends with code 0 when the job has ended, and cleanly on SIGINT and SIGTERM. When somebody was lost
it waits for the job's processes to come together again, `BYTEPS_RESTART_TIMEOUT` seconds for the
first of them; if none comes, or the job did not start, it ends with code 1. Needs neither
TensorFlow nor NumPy.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import sys
import typing
from collections.abc import Callable
from contextlib import AbstractContextManager

from tf_byteps import logs, process
from tf_byteps.errors import ConfigError, Dismissed, RendezvousError, StartInterruptedError
from tf_byteps.job import WAIT_SECONDS, ElasticJobScheduler, JobScheduler
from tf_byteps.metrics.endpoint import Endpoint, serving
from tf_byteps.metrics.sources import scheduler_source

if typing.TYPE_CHECKING:
    from tf_byteps.config import Config

_logger = logging.getLogger("tf_byteps")


def schedule(
    config: Config,
    report: Callable[[str], None] = lambda line: None,
    orders: int | None = None,
    stays: bool = False,
) -> str:
    """Runs the scheduler until its job is over.

    Args:
        config: a `Config` with role "scheduler".
        report: called with "port <number>" when processes can join, with "joined" when the first
            worker has, with "started" when all have, and with "lost <who, in a sentence>"; in an
            elastic job with "members <names>" each time when workers have come together.
        orders: see `ElasticScheduler`.
        stays: when all workers have left in order it reports "over" and waits for them, who may
            call `init` again, until it is told to end. An elastic job's ends all the same.

    Returns:
        "" or a sentence about who was lost.

    Raises:
        BytePSError: the job did not start.
    """
    if config.role != "scheduler":
        raise ConfigError(f"{config.named('role')}, but a scheduler's must be 'scheduler'")
    if config.elastic:
        return _schedule_elastic(config, report, orders)
    scheduler = JobScheduler(config)
    _logger.info("the scheduler listens at %s", scheduler.address)
    report(f"port {scheduler.address.port}")
    # Who comes back looks for it at the same place.
    config = config.replace(scheduler_port=scheduler.address.port)
    failure = _run_job(config, scheduler, report, come_again=stays)
    while stays or (failure and config.restart_timeout):
        if not failure:
            report("over")
            failure = _run_job(config, JobScheduler(config), report, math.inf, stays)
            continue
        if not config.restart_timeout:
            break
        # Who has started this process with `stays` says how the job has failed.
        _logger.log(
            logging.INFO if stays else logging.WARNING,
            "the job has failed: %s. Waiting %g s for its processes to come back",
            failure,
            config.restart_timeout,
            extra=logs.event("job_failed"),
        )
        try:
            worker_timeout = config.restart_timeout
            failure = _run_job(config, JobScheduler(config), report, worker_timeout, stays)
        except RendezvousError as error:
            _logger.error("the job was not started again: %s", error)
            break
    return failure


def _schedule_elastic(config: Config, report: Callable[[str], None], orders: int | None) -> str:
    scheduler = ElasticJobScheduler(config, orders)
    report(f"port {scheduler.address.port}")
    try:
        with _metrics(config, scheduler):
            while True:
                failure = scheduler.run_epoch(lambda names: report(f"members {' '.join(names)}"))
                if failure:
                    _logger.warning("%s. Waiting for the others", failure)
    except Dismissed as over:
        _logger.info("%s", over.reason)
        return ""
    finally:
        scheduler.stop()


def _run_job(
    config: Config,
    scheduler: JobScheduler,
    report: Callable[[str], None],
    worker_timeout: float | None = None,
    come_again: bool = False,
) -> str:
    """Runs a job; with `come_again` workers that have left may come for the next meanwhile."""
    try:
        with _metrics(config, scheduler):
            scheduler.run_rendezvous(worker_timeout, lambda: report("joined"))
            report("started")
            _await_end(scheduler, report, come_again)
        return scheduler.failure
    except StartInterruptedError as error:
        return str(error)
    finally:
        scheduler.stop()


def _await_end(scheduler: JobScheduler, report: Callable[[str], None], come_again: bool) -> None:
    is_over, lost = False, ""
    while not is_over:
        is_over = scheduler.wait(WAIT_SECONDS)
        # At once: the launcher ends the others meanwhile, and this process too.
        if scheduler.failure and not lost:
            lost = scheduler.failure
            report(f"lost {lost}")
        if not is_over:
            scheduler.answer_late_joins(come_again)


def _metrics(config: Config, scheduler: JobScheduler) -> AbstractContextManager[Endpoint]:
    config = config.replace(scheduler_port=scheduler.address.port)  # it may have taken any
    return serving(config, "the scheduler", [scheduler_source(scheduler)], scheduler)


def main() -> int:
    """Runs this process as the scheduler; returns its exit code."""
    arguments = _parse_arguments()
    report = _reporter(arguments.report_fd)
    orders, stays = arguments.orders_fd, arguments.stay
    return process.run("scheduler", lambda config: schedule(config, report, orders, stays), stays)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tf_byteps.scheduler", description=__doc__.partition("\n")[2]
    )
    parser.add_argument(
        "--report-fd",
        type=int,
        metavar="N",
        help='open descriptor that gets the lines "port <number>", "joined", "started" and '
        '"lost <who>"; for launchers',
    )
    parser.add_argument(
        "--orders-fd",
        type=int,
        metavar="N",
        help="open descriptor with what launchers say of an elastic job's workers",
    )
    parser.add_argument(
        "--stay",
        action="store_true",
        help='when all workers have left in order, write "over" and wait for them to come again',
    )
    return parser.parse_args()


def _reporter(descriptor: int | None) -> Callable[[str], None]:
    if descriptor is None:
        return lambda line: None

    def report(line: str) -> None:
        try:
            os.write(descriptor, f"{line}\n".encode())
        except BrokenPipeError:
            _logger.warning("the launcher does not listen any more")

    return report


if __name__ == "__main__":
    sys.exit(main())
