"""The last line of bpslaunch: who has failed, and what workers have reported when they left."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tf_byteps.metrics.exit_summary import COUNTED, FILE_NAME

_NAMED = 8  # of those that failed
_UNITS = (("GB", 1e9), ("MB", 1e6), ("KB", 1e3))


class Tally:
    """How processes have ended."""

    def __init__(self) -> None:
        self._worker_codes: list[int | None] = []
        self._failed: Counter[str] = Counter()  # labels; not of those that ended because of others

    @property
    def ended(self) -> int:
        """How many workers have."""
        return len(self._worker_codes)

    def note_worker(self, code: int | None) -> None:
        """A worker has ended with this exit code."""
        self._worker_codes.append(code)

    def note_failed(self, label: str) -> None:
        """A process with this label has failed by itself."""
        self._failed[label] += 1

    def text(self, seconds: float, clauses: str) -> str:
        """The line.

        Args:
            seconds: how long the job has run.
            clauses: what goes between the workers and those that failed, each behind "; ".
        """
        well = self._worker_codes.count(0)
        noun = "worker" if self.ended == 1 else "workers"
        return (
            f"{well} of {self.ended} {noun} ended with code 0, after {seconds:.1f} s{clauses}"
            f"{self._who()}"
        )

    def _who(self) -> str:
        named = [label if n == 1 else f"{label} ({n} times)" for label, n in self._failed.items()]
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        return f"; failed: {', '.join(named[:_NAMED])}{more}" if named else ""


class ExitSummaries:
    """Where this machine's workers leave what they have counted.

    A file in memory: nothing is left of it, however bpslaunch ends.
    """

    def __init__(self) -> None:
        self._file = os.fdopen(os.memfd_create(FILE_NAME), "rb")

    @property
    def variables(self) -> dict[str, str]:
        """What a worker is told by."""
        return {"BYTEPS_SUMMARY_FILE": f"/proc/{os.getpid()}/fd/{self._file.fileno()}"}

    def close(self) -> None:
        """Forgets all."""
        self._file.close()

    def text(self, workers: int) -> str:
        """Clauses for a sentence, each behind "; ".

        Args:
            workers: how many have ended. If others than these have reported, it says so.

        Returns:
            "" if none has reported anything, as on other hosts or when it was killed.
        """
        self._file.seek(0)
        reported = list(filter(None, map(_read, self._file)))
        if not reported:
            return ""
        total = {key: sum(each[key] for each in reported) for key in COUNTED}
        ranks = len({each["rank"] for each in reported})
        clauses = _clauses(total, _most(reported, "steps"), ranks)
        clauses += [_counted(_most(reported, "lost_servers"), "lost server")]
        clauses += sorted(
            {f"timeline in {each['timeline']}" for each in reported if each["timeline"]}
        )
        of = "" if ranks >= workers else f" (of {ranks} of {workers} workers)"
        shown = "; ".join(filter(None, clauses))
        return f"; {shown}{of}" if shown else ""


def _clauses(total: Mapping[str, float], steps: float, ranks: int) -> list[str]:
    clauses = []
    if total["steps"]:
        mean = total["step_seconds"] / total["steps"]
        clauses.append(f"{_counted(steps, 'step')} of {mean * 1e3:.1f} ms")
        if not total["unmeasured_steps"] and total["step_seconds"]:
            share = total["exposed_seconds"] / total["step_seconds"]
            clauses[-1] += f", {share:.0%} of it exposed communication"
        if total["samples"] and total["step_seconds"]:
            rate = total["samples"] * ranks / total["step_seconds"]
            clauses.append(f"{_short(rate)} samples/s")
    if total["pushed_bytes"]:
        clauses.append(f"{_in_bytes(total['pushed_bytes'] / ranks)} sent per worker")
    if total["outer_rounds"]:
        saved = _in_bytes(total["saved_bytes"] / ranks)
        clauses.append(f"{_counted(total['outer_rounds'] / ranks, 'outer round')}, {saved} saved")
    if total["asynchronous_steps"]:
        stale = total["stale_changes"] / total["asynchronous_steps"]
        clauses.append(f"mean staleness {_short(stale)}")
    if total["retried_parts"]:
        clauses.append(f"{_counted(total['retried_parts'], 'part')} pushed again")
    return [*clauses, _counted(total["reconnects"], "reconnect")]


def _most(reported: list[dict[str, Any]], key: str) -> float:
    """The largest sum of a rank, which may have left several times."""
    sums: dict[int, float] = {}
    for each in reported:
        sums[each["rank"]] = sums.get(each["rank"], 0) + each[key]
    return max(sums.values())


def _counted(number: float, noun: str) -> str:
    return f"{number:.0f} {noun}{'' if number == 1 else 's'}" if number else ""


def _short(number: float) -> str:
    return f"{number:.3g}" if number < 100 else f"{number:.0f}"


def _in_bytes(value: float) -> str:
    for unit, size in _UNITS:
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} bytes"


def _read(line: bytes) -> dict[str, Any] | None:
    try:
        reported = json.loads(line)
    except ValueError:  # it was killed meanwhile
        return None
    return reported if all(key in reported for key in COUNTED) else None
