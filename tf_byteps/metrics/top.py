"""bpstop: a live view of a running job in the terminal."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.live import Live

from tf_byteps import __version__
from tf_byteps.errors import BytePSError, ConfigError
from tf_byteps.metrics import record
from tf_byteps.metrics.finding import find_here, read_address
from tf_byteps.metrics.local import LocalJob
from tf_byteps.metrics.rows import LOST, RUNS, SILENT, View, total
from tf_byteps.metrics.view import MOST_ROWS, draw
from tf_byteps.metrics.watch import Watch
from tf_byteps.signals import Interrupted, raise_on_signals

_DESCRIPTION = """\
Shows what the processes of a running job do:

    bpstop
    bpstop --once --json
    bpstop --record 20s timeline
    bpstop host1:9400 host2:9400

Without an address it shows your job on this host, and on the scheduler's host
all of it. An address is the --metrics-port of a job. docs/metrics.md explains
the columns.
"""
_USAGE = 2
_FIXED_LINES = 15  # of the view, besides the tables' rows
_ADDED = {
    "worker": (
        "pushed_bytes_per_second",
        "pulled_bytes_per_second",
        "in_flight_bytes",
        "credit_bytes",
        "queued_parts",
        "retried_parts",
        "memory_bytes",
        "cpu_share",
    ),
    "server": (
        "received_bytes_per_second",
        "replied_bytes_per_second",
        "rounds_per_second",
        "sum_bytes",
        "memory_bytes",
        "cpu_share",
        "connections",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs bpstop; returns its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.json and not options.once:
        parser.error("--json needs --once")
    if not options.once and not options.record and not sys.stdout.isatty():
        parser.error("standard output is not a terminal: use --once")
    if options.pid is not None and options.addresses:
        parser.error("give either addresses or --pid")
    if options.record and (options.once or options.addresses):
        parser.error("--record goes with --pid only: it asks the workers on this host")
    try:
        with raise_on_signals():
            if options.record:
                time_text, folder = options.record
                return _record(time_text, folder, options.pid)
            given = [read_address(text) for text in options.addresses] or [find_here(options.pid)]
            watch = Watch(given)
            if options.once:
                return _print_once(watch, options)
            _follow(watch, options.interval)
    except BytePSError as error:
        print(f"bpstop: {error}", file=sys.stderr)
        return _USAGE if isinstance(error, ConfigError) else 1
    except Interrupted:
        pass
    return 0


def _record(time_text: str, folder: str, process: int | None) -> int:
    """Records a timeline, and prints what steps wait for."""
    seconds = record.read_time(time_text)
    job = find_here(process)
    if not isinstance(job, LocalJob):
        raise ConfigError("--record asks workers at their local sockets, and finds none here")
    for problem in record.record(job, pathlib.Path(folder), seconds, record.show):
        print(f"bpstop: {problem}", file=sys.stderr)
    from tf_byteps.timeline import report

    return report.main([folder, "--explain"])


def _print_once(watch: Watch, options: argparse.Namespace) -> int:
    view = watch.look()
    if view.rows:  # rates need two looks
        time.sleep(options.interval)
        view = watch.look()
    for sentence in view.trouble:
        print(f"bpstop: {sentence}", file=sys.stderr)
    if options.json:
        print(json.dumps(to_json(view), indent=1))
    elif view.rows:
        Console().print(draw(dataclasses.replace(view, trouble=[])))
    return 1 if view.trouble or not view.rows else 0


def _follow(watch: Watch, interval: float) -> None:
    with Live(screen=True, auto_refresh=False) as live:
        while True:
            began = time.monotonic()
            view = watch.look()
            room = live.console.height - _FIXED_LINES
            share = room // 2 if view.workers and view.servers else room
            live.update(draw(view, max(3, min(share, MOST_ROWS))), refresh=True)
            time.sleep(max(0.0, interval - (time.monotonic() - began)))


def to_json(view: View) -> dict[str, Any]:
    """A `View` as `bpstop --json` prints it."""
    groups = {"worker": view.workers, "server": view.servers, "scheduler": view.schedulers}
    printed: dict[str, Any] = {
        f"{role}s": [dataclasses.asdict(row) for row in rows] for role, rows in groups.items()
    }
    printed["totals"] = {
        f"{role}s": {
            **{state: sum(row.state == state for row in groups[role]) for state in _STATES},
            **{key: total(groups[role], key) for key in keys},
        }
        for role, keys in _ADDED.items()
    }
    printed["unseen"] = [{"role": role, "rank": rank} for role, rank in view.unseen]
    printed["elsewhere"] = [{"role": role, "rank": rank} for role, rank in view.elsewhere]
    printed["events"] = [
        {"time": time, "event": event, "peer": peer} for time, event, peer in view.events
    ]
    printed["replaced"] = [
        {"role": role, "rank": rank, "seconds": seconds} for (role, rank), seconds in view.replaced
    ]
    return printed


_STATES = (RUNS, SILENT, LOST)


def _interval(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.1 <= number <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 3600")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bpstop",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "addresses",
        nargs="*",
        metavar="HOST:PORT",
        help="the --metrics-port of the job on a host; its processes have the ports from there on",
    )
    parser.add_argument(
        "--pid",
        type=int,
        metavar="PID",
        help="show the job of this process, if several run on this host",
    )
    parser.add_argument(
        "--once", action="store_true", help="print what happens in one interval, and end"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument(
        "--record",
        nargs=2,
        metavar=("TIME", "FOLDER"),
        help="have the workers on this host record a timeline for this long, such as 20s, and say "
        "what steps wait for",
    )
    parser.add_argument(
        "--interval",
        type=_interval,
        default=1.0,
        metavar="SECONDS",
        help="from one look to the next (default: 1)",
    )
    parser.add_argument("--version", action="version", version=f"tf_byteps {__version__}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
