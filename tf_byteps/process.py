"""What the processes of tf_byteps itself have in common: servers and the scheduler."""

import logging
from collections.abc import Callable

from tf_byteps import logs
from tf_byteps.config import Config
from tf_byteps.errors import BytePSError
from tf_byteps.signals import Interrupted, raise_on_signals

_logger = logging.getLogger("tf_byteps")


def run(role: str, work: Callable[[Config], str], is_reported: bool = False) -> int:
    """Runs this process in a role, configured by environment variables. Errors go to the log.

    Args:
        role: the role if `DMLC_ROLE` names none.
        work: a function of the `Config` that returns "", or a sentence about who was lost.
        is_reported: who has started this process reports a loss to the user.

    Returns:
        The process's exit code: 1 if it could not do its work or somebody was lost, else 0, also
        after SIGINT and SIGTERM.
    """
    logs.print_to_standard_error()
    try:
        with raise_on_signals():
            config = Config.from_environment(default_role=role)
            logs.configure(config)
            failure = work(config)
    except Interrupted as interrupted:
        _logger.info("%s", interrupted)
        return 0
    except BytePSError as error:
        _logger.error("%s", error)
        return 1
    if failure:
        level = logging.INFO if is_reported else logging.ERROR
        _logger.log(level, "the job has failed: %s", failure, extra=logs.event("job_failed"))
    return 1 if failure else 0
