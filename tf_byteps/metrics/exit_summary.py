"""A worker that leaves tells bpslaunch of itself: a line in a file in bpslaunch's memory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from tf_byteps import step_counters

FILE_NAME = "bpslaunch-summary"
# Those of the engine's counters that are reported.
COUNTED = (
    "steps",
    "unmeasured_steps",
    "step_seconds",
    "exposed_seconds",
    "samples",
    "pushed_bytes",
    "retried_parts",
    "reconnects",
    "lost_servers",
    "outer_rounds",
    "saved_bytes",
    "asynchronous_steps",
    "stale_changes",
)


def counts(counters: Mapping[str, Any]) -> dict[str, float]:
    """What is reported of an engine's counters; nothing of a worker that has not begun."""
    if not counters:
        return {}
    reconnects = sum(path["reconnects"] for path in counters["paths"])
    known = {**step_counters.read(), **counters, "reconnects": reconnects}
    return {key: known[key] for key in COUNTED}


def report(path: str, rank: int, reported: Mapping[str, float], timeline: str | None) -> None:
    """Adds a line. If it cannot be written that is no matter: bpslaunch says less then.

    Args:
        path: `Config.summary_file`.
        rank: this worker's.
        reported: what `counts` has returned.
        timeline: where the worker has written its timeline, if it has.
    """
    try:
        # In a container the path may be another process's.
        if not os.readlink(path).startswith(f"/memfd:{FILE_NAME}"):
            return
        with open(path, "ab", buffering=0) as file:
            file.write(
                json.dumps({"rank": rank, "timeline": timeline, **reported}).encode() + b"\n"
            )
    except OSError:
        return
