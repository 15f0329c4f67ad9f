"""What bpslaunch says of the process that failed first."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence

from tf_byteps.launch.running_task import RunningTask
from tf_byteps.launch.tracebacks import telling_lines


def report(
    failed: RunningTask, lost: str, ended: Sequence[RunningTask], remark: str, is_alone: bool
) -> Iterator[str]:
    """The lines.

    Args:
        failed: the process.
        lost: whom the scheduler has lost first, in a sentence, or "".
        ended: processes that have ended, in this order.
        remark: what else its exit code may mean, in a sentence, or "".
        is_alone: whether the job has no other process, so that all can see what it printed last.
    """
    label, how = failed.task.label, f"exit code {failed.code}"
    if failed.code and failed.code > 128 and failed.code - 128 in set(signal.Signals):
        how += f" ({signal.Signals(failed.code - 128).name})"
    # A worker's server is lost with it.
    if lost and not lost.startswith(f"{label} ") and f"in the process of {label})" not in lost:
        yield f"the job has failed: {lost}"
    yield f"{label} failed first, with {how}"
    if failed.task.role == "worker" and (left := _ended_well_before(failed, ended)):
        yield f"{left} had ended before, with exit code 0: perhaps the others have waited for it"
    if remark:
        yield remark
    if not is_alone and failed.last_lines:
        yield f"the last lines of {label}:"
        for line in telling_lines(failed.last_lines):
            yield f"  {line}"


def _ended_well_before(failed: RunningTask, ended: Sequence[RunningTask]) -> str:
    """The first worker that had, or "". A program that calls `exit()` ends well, too."""
    before = ended[: ended.index(failed)] if failed in ended else []
    well = [each for each in before if each.task.role == "worker" and each.code == 0]
    return well[0].task.label if well else ""
