"""The scheduler: `python -m tf_byteps.scheduler`, configured by environment variables.

Ends with code 0 when the job has ended, with 1 when somebody was lost or the job did not start, and
cleanly on SIGINT and SIGTERM. Needs neither TensorFlow nor NumPy.
"""

import argparse
import logging
import os
import sys

from tf_byteps import process
from tf_byteps.errors import ConfigError
from tf_byteps.job import WAIT_SECONDS, JobScheduler

_logger = logging.getLogger("tf_byteps")


def schedule(config, report=lambda line: None):
    """Runs the scheduler until its job is over.

    Args:
        config: a `Config` with role "scheduler".
        report: called with "port <number>" when processes can join, with "started" when all have.

    Returns:
        "" or a sentence about who was lost.

    Raises:
        BytePSError: the job did not start.
    """
    if config.role != "scheduler":
        raise ConfigError(f"{config.named('role')}, but a scheduler's must be 'scheduler'")
    scheduler = JobScheduler(config)
    try:
        _logger.info("the scheduler listens at %s", scheduler.address)
        report(f"port {scheduler.address.port}")
        scheduler.run_rendezvous()
        report("started")
        while not scheduler.wait(WAIT_SECONDS):
            scheduler.refuse_late_joins()
        return scheduler.failure
    finally:
        scheduler.stop()


def main():
    """Runs this process as the scheduler; returns its exit code."""
    report = _reporter(_parse_arguments().report_fd)
    return process.run("scheduler", lambda config: schedule(config, report))


def _parse_arguments():
    parser = argparse.ArgumentParser(prog="python -m tf_byteps.scheduler")
    parser.add_argument(
        "--report-fd",
        type=int,
        metavar="N",
        help='open descriptor that gets the lines "port <number>" and "started"; for launchers',
    )
    return parser.parse_args()


def _reporter(descriptor):
    if descriptor is None:
        return lambda line: None

    def report(line):
        try:
            os.write(descriptor, f"{line}\n".encode())
        except BrokenPipeError:
            _logger.warning("the launcher does not listen any more")

    return report


if __name__ == "__main__":
    sys.exit(main())
