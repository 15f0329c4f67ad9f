"""A summation server: `python -m tf_byteps.server`, configured by environment variables.

Ends with code 0 when the job has ended, and cleanly on SIGINT and SIGTERM. When somebody was lost
it joins again, and ends with code 1 if no scheduler answers within `BYTEPS_RESTART_TIMEOUT` seconds
or the job does not start again. Needs neither TensorFlow nor NumPy.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
import typing

from tf_byteps import _engine, logs, process
from tf_byteps.errors import ConfigError, Dismissed, RendezvousError, StartInterruptedError
from tf_byteps.job import WAIT_SECONDS, SummationServer
from tf_byteps.metrics.endpoint import serving
from tf_byteps.metrics.sources import server_source
from tf_byteps.rendezvous import client

if typing.TYPE_CHECKING:
    from tf_byteps.config import Config

_logger = logging.getLogger("tf_byteps")


def serve(config: Config, stays: bool = False) -> str:
    """Runs a server until its job is over.

    Args:
        config: a `Config` with role "server".
        stays: it joins again when the job has ended in order, until it is told to end.

    Returns:
        "" or a sentence about who was lost.

    Raises:
        BytePSError: the server cannot start, or the job did not.
    """
    if config.role != "server":
        raise ConfigError(f"{config.named('role')}, but a server's must be 'server'")
    if config.elastic:
        return _serve_elastic_job(config)
    failure = _serve_job(config)
    while stays or (failure and config.restart_timeout):
        if not failure:
            try:
                failure = _serve_job(config, math.inf)
            except RendezvousError as error:  # nobody has come; the scheduler and others say it
                _logger.info("%s", error)
                return ""
            continue
        if not config.restart_timeout:
            break
        # Who has started this process with `stays` says how the job has failed.
        _logger.log(
            logging.INFO if stays else logging.WARNING,
            "the job has failed: %s. Joining again",
            failure,
            extra=logs.event("job_failed"),
        )
        try:
            failure = _serve_job(config, config.restart_timeout)
        except RendezvousError as error:
            _logger.error("the job was not started again: %s", error)
            break
    return failure


def _serve_elastic_job(config: Config) -> str:
    """Joins again whenever the workers have changed, until the scheduler says that all is over."""
    kept = _engine.KeptTables()
    try:
        while True:
            failure = _serve_job(config, kept=kept)
            if failure:
                _logger.warning("%s. Joining again", failure)
    except Dismissed as over:
        _logger.info("%s", over.reason)
        return ""


def _serve_job(
    config: Config, answer_timeout: float | None = None, kept: _engine.KeptTables | None = None
) -> str:
    server = SummationServer(config, kept)
    try:
        _logger.info("the server listens at %s", server.address)
        with serving(config, "the server", [server_source(server)]) as endpoint:
            book, rank = client.join(
                config,
                server.address,
                server.start,
                answer_timeout=answer_timeout,
                metrics=endpoint.address,
            )
            logs.configure(config, rank)
            endpoint.answer_scheduler(config, book, rank)
            while not server.wait(WAIT_SECONDS):
                pass
            return server.failure
    except StartInterruptedError as error:
        return str(error)
    finally:
        server.stop()


def main() -> int:
    """Runs this process as a server; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tf_byteps.server", description=__doc__.partition("\n")[2]
    )
    parser.add_argument(
        "--stay", action="store_true", help="join again when the job has ended in order"
    )
    stays = parser.parse_args().stay
    return process.run("server", lambda config: serve(config, stays), stays)


if __name__ == "__main__":
    sys.exit(main())
