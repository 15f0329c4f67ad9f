"""Draws a `View` of a job for a terminal of 80 columns or more."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tf_byteps.metrics.rows import LOST, RUNS, SILENT, Row, Scheduler, Server, View, Worker, total

MOST_ROWS = 20  # of a role; of more processes, the slowest
_SLOWEST = 10
_LAST_EVENTS = 3
_NO_NEWS = ("process_here",)  # the tables have who has come
_STYLES = {RUNS: "", SILENT: "yellow", LOST: "bold red"}
# Parts arrive at somewhat different times anyway.
_STRAGGLER_SECONDS = 0.01
_UNKNOWN = "-"

# A column's title, the attribute it shows, and how it is written.
Column = tuple[str, str, Callable[[float], str]]


def _short(value: float) -> str:
    return f"{value:.1f}" if abs(value) < 1000 else f"{value:.0f}"


def _in_mega(value: float) -> str:
    return _short(value / 1e6)


def _in_percent(value: float) -> str:
    return f"{value * 100:.0f}"


def _in_percents(value: float) -> str:
    return f"{value * 100:.2g}"


def _whole(value: float) -> str:
    return f"{value:.0f}"


def _in_milli(value: float) -> str:
    return _short(value * 1e3)


_WORKER_COLUMNS: tuple[Column, ...] = (
    ("step ms", "step_seconds", _in_milli),
    ("exp %", "exposed_share", _in_percent),
    ("up MB/s", "pushed_bytes_per_second", _in_mega),
    ("down MB/s", "pulled_bytes_per_second", _in_mega),
    ("exch %", "exchanging_share", _in_percent),
    ("fly MB", "in_flight_bytes", _in_mega),
    ("lag ms", "lag_seconds", _in_milli),
)
# Of jobs that train with local steps, or asynchronously.
_OUTER_COLUMNS: tuple[Column, ...] = (
    ("rounds", "outer_rounds", _whole),
    ("since", "steps_since_round", _whole),
    ("saved MB", "saved_bytes", _in_mega),
    ("diverg %", "divergence", _in_percents),
)
_QUORUM_COLUMNS: tuple[Column, ...] = (("late", "late_changes", _whole),)
_ASYNCHRONOUS_COLUMNS: tuple[Column, ...] = (("stale", "staleness", _short),)
_SERVER_COLUMNS: tuple[Column, ...] = (
    ("in MB/s", "received_bytes_per_second", _in_mega),
    ("out MB/s", "replied_bytes_per_second", _in_mega),
    ("rounds/s", "rounds_per_second", _short),
    ("sums MB", "sum_bytes", _in_mega),
    ("RSS MB", "memory_bytes", _in_mega),
    ("CPU %", "cpu_share", _in_percent),
    ("conn", "connections", str),
)
# Sums of these say nothing.
_NOT_ADDED = (
    "lag_seconds",
    "exchanging_share",
    "step_seconds",
    "exposed_share",
    "outer_rounds",
    "steps_since_round",
    "divergence",
    "staleness",
)


def draw(view: View, most_rows: int = MOST_ROWS) -> RenderableType:
    """What a terminal shows.

    Args:
        view: a `View`.
        most_rows: that each table may have; of more processes it shows those that are lost and the
            slowest ones, and the sum of all.
    """
    parts: list[RenderableType] = [_headline(view, most_rows)]
    if view.workers:
        parts.append("")
        parts.append(_table("worker", _worker_columns(view), view.workers, most_rows, _by_slowness))
    if view.servers:
        parts.append("")
        parts.append(_table("server", _SERVER_COLUMNS, view.servers, most_rows, _by_load))
    remarks = [Text(line, style) for line, style in _remarks(view)]
    parts += ["", *remarks] if remarks else []
    news = [event for event in view.events if event[1] not in _NO_NEWS]
    events = [Text(_event(*event), "dim") for event in news[-_LAST_EVENTS:]]
    parts += ["", *events] if events else []
    return Group(*parts)


def _worker_columns(view: View) -> tuple[Column, ...]:
    columns = _WORKER_COLUMNS
    if any(row.outer_rounds or row.steps_since_round for row in view.workers):
        columns += _OUTER_COLUMNS
    if any(row.late_changes for row in view.workers):
        columns += _QUORUM_COLUMNS
    if any(row.staleness is not None for row in view.workers):
        columns += _ASYNCHRONOUS_COLUMNS
    return columns


def _event(when: float, name: str, peer: str) -> str:
    shown = time.strftime("%H:%M:%S", time.localtime(when))
    return f"{shown}  {f'{peer}: ' if peer else ''}{name.replace('_', ' ')}"


def _headline(view: View, most_rows: int) -> Text:
    counts = [_counted(view.workers, "worker"), _counted(view.servers, "server")]
    is_cut = max(len(view.workers), len(view.servers)) > most_rows
    note = " (the slowest workers and busiest servers)" if is_cut else ""
    return Text(f"{time.strftime('%H:%M:%S')}  {', '.join(counts)}{note}", "bold")


def _counted(rows: Sequence[Row], noun: str) -> str:
    return f"{len(rows)} {noun}" + ("" if len(rows) == 1 else "s")


def _table(
    noun: str,
    columns: Sequence[Column],
    rows: Sequence[Row],
    most: int,
    order: Callable[[Any], Any],
) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column(noun, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for title, _, _ in columns:
        table.add_column(title, justify="right", no_wrap=True)
    shown = rows
    if len(rows) > most:
        chosen = sorted(rows, key=order)[: min(most, _SLOWEST)]
        shown = sorted(chosen, key=lambda row: row.rank)
    for row in shown:
        cells = [_cell(getattr(row, key), write) for _, key, write in columns]
        table.add_row(str(row.rank), row.state, *cells, style=_STYLES[row.state])
    if len(rows) > 1:
        sums = [
            "" if key in _NOT_ADDED else _cell(total(rows, key), write) for _, key, write in columns
        ]
        table.add_row("all", _states(rows), *sums, style="bold")
    return table


def _cell(value: Any, write: Callable[[float], str]) -> str:
    return _UNKNOWN if value is None else write(value)


def _states(rows: Sequence[Row]) -> str:
    return f"{sum(1 for row in rows if row.state == RUNS)} run"


def _by_slowness(row: Worker) -> tuple[bool, float, int]:
    return row.state == RUNS, -(row.lag_seconds or 0.0), row.rank


def _by_load(row: Server) -> tuple[bool, float, int]:
    return row.state == RUNS, -(row.received_bytes_per_second or 0.0), row.rank


def _remarks(view: View) -> list[tuple[str, str]]:
    """What to look at, with a style for each line."""
    of_schedulers = [remark for row in view.schedulers for remark in _of_scheduler(row)]
    trouble = [(sentence, "yellow") for sentence in view.trouble]
    return [
        *of_schedulers,
        *_of_losses(view),
        *_of_workers(view),
        *_of_tables(view),
        *_of_other_places(view),
        *trouble,
    ]


def _of_losses(view: View) -> list[tuple[str, str]]:
    remarks = []
    is_over = bool(view.rows) and all(row.state == LOST for row in view.rows)
    if is_over:
        remarks.append(("no process answers any more: the job has ended", _STYLES[LOST]))
    for state in (SILENT,) if is_over else (LOST, SILENT):
        names = [f"{row.role} {row.rank}" for row in view.rows if row.state == state]
        if names:
            remarks.append((f"{state}: {_listed(names)}", _STYLES[state]))
    if view.replaced and not is_over:
        names = _listed([f"{role} {rank}" for (role, rank), _ in view.replaced])
        ago = min(seconds for _, seconds in view.replaced)
        line = f"lost {ago:.0f} s ago: {names}; others have taken over"
        remarks.append((line, _STYLES[LOST]))
    return remarks


def _of_workers(view: View) -> list[tuple[str, str]]:
    remarks = []
    late = max(view.workers, key=lambda row: row.lag_seconds or 0.0, default=None)
    if late is not None and (late.lag_seconds or 0.0) >= _STRAGGLER_SECONDS:
        lag = _in_milli(late.lag_seconds or 0.0)
        remarks.append((f"worker {late.rank} is waited for: it comes {lag} ms after the first", ""))
    retried = total(view.workers, "retried_parts")
    if retried:
        remarks.append((f"{retried:.0f} parts were pushed again", ""))
    # All workers choose alike, but one may be a step behind.
    sums = max((row.row_sum_tensors or 0 for row in view.workers), default=0)
    gathers = max((row.row_gather_tensors or 0 for row in view.workers), default=0)
    if sums or gathers:
        line = f"rows: servers add up those of {sums:.0f} tensors, {gathers:.0f} are gathered"
        remarks.append((line, ""))
    return remarks


def _of_tables(view: View) -> list[tuple[str, str]]:
    lacking = total(view.servers, "lacking_table_blocks")
    if not lacking:
        return []
    line = f"tables: {lacking:.0f} blocks are on one server only, because a server was lost"
    return [(line, "yellow")]


def _of_other_places(view: View) -> list[tuple[str, str]]:
    remarks = []
    if view.unseen:
        names = _listed([f"{role} {rank}" for role, rank in view.unseen])
        remarks.append((f"not seen here: {names}", "yellow"))
    if view.elsewhere:
        names = _listed([f"{role} {rank}" for role, rank in view.elsewhere])
        remarks.append((f"on other hosts: {names}; bpstop on the scheduler's host shows them", ""))
    return remarks


def _of_scheduler(row: Scheduler) -> list[tuple[str, str]]:
    if row.failed:
        return [("the scheduler has lost a process: the job ends, or begins anew", _STYLES[LOST])]
    if row.lost_servers:
        return [(f"the scheduler misses {row.lost_servers} servers", _STYLES[LOST])]
    return []


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
