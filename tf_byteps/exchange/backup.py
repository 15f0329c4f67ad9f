"""How many workers an average of gradients does without."""

import logging

from tf_byteps import runtime

_logger = logging.getLogger("tf_byteps")
_said = set()  # what has been said of numbers that are too large


def backup_workers(given: int | None) -> int:
    """Checks a number of backup workers against the job.

    Args:
        given: an integer; `None`: what the configuration says.

    Returns:
        The number; 0 in a job of one worker. In an elastic job, which may have become smaller than
        it was when somebody chose the number, it is one less than the workers at most.

    Raises:
        ValueError: there are not so many workers to do without, or the job is deterministic.
        BytePSError: `tf_byteps.init()` was not called.
    """
    config = runtime.config()
    number = config.backup_workers if given is None else given
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"backup_workers must be an integer of at least 0, got {number!r}")
    if runtime.size() == 1:
        return 0
    if number >= runtime.size() and config.elastic:
        _say_once(
            f"backup_workers is {number}, but the job has {runtime.size()} workers now: averages "
            f"wait for one of them"
        )
        number = runtime.size() - 1
    if number >= runtime.size():
        raise ValueError(
            f"backup_workers is {number}, but the job has {runtime.size()} workers: at least one "
            "must be waited for"
        )
    if number and config.deterministic:
        raise ValueError(
            f"backup_workers is {number}, and the job is deterministic: with backup workers the "
            "time of arrival decides what is in an average; set one of them only"
        )
    return number


def check_with_cross_step(number: int, cross_step: bool) -> None:
    """Raises ValueError if there are backup workers and `cross_step` is set."""
    if cross_step and number:
        raise ValueError(
            f"backup_workers is {number}, and cross_step is set: updates that are left to "
            "the next step wait for all workers; choose one of them"
        )


def _say_once(sentence: str) -> None:
    if sentence not in _said:
        _said.add(sentence)
        _logger.warning("%s", sentence)
