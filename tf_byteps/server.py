"""A summation server: `python -m tf_byteps.server`, configured by environment variables.

Ends with code 0 when the job has ended, with 1 when somebody was lost, and cleanly on SIGINT and
SIGTERM. Needs neither TensorFlow nor NumPy.
"""

import logging
import sys

from tf_byteps import process
from tf_byteps.errors import ConfigError
from tf_byteps.job import WAIT_SECONDS, SummationServer
from tf_byteps.rendezvous import client

_logger = logging.getLogger("tf_byteps")


def serve(config):
    """Runs a server until its job is over.

    Args:
        config: a `Config` with role "server".

    Returns:
        "" or a sentence about who was lost.

    Raises:
        BytePSError: the server cannot start, or the job did not.
    """
    if config.role != "server":
        raise ConfigError(f"{config.named('role')}, but a server's must be 'server'")
    server = SummationServer(config)
    try:
        _logger.info("the server listens at %s", server.address)
        client.join(config, server.address, server.start)
        while not server.wait(WAIT_SECONDS):
            pass
        return server.failure
    finally:
        server.stop()


def main():
    """Runs this process as a server; returns its exit code."""
    return process.run("server", serve)


if __name__ == "__main__":
    sys.exit(main())
