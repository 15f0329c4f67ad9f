"""What a process writes and shows of itself: logs, counters, traces and metrics."""

from __future__ import annotations

import dataclasses

from tf_byteps.config.declaring import choice, option, text


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    """See `Options`."""

    log_level: str = option(
        "WARNING",
        "BYTEPS_LOG_LEVEL",
        choice("DEBUG", "INFO", "WARNING", "ERROR", aliases={"TRACE": "DEBUG", "FATAL": "ERROR"}),
        "Messages below this level are not printed (TRACE means DEBUG, FATAL means ERROR).",
    )
    log_format: str = option(
        "text",
        "BYTEPS_LOG_FORMAT",
        choice("text", "json"),
        "json writes each message as one JSON object on a line (see [logs](logs.md)).",
    )
    server_stats_file: str | None = option(
        None,
        "BYTEPS_SERVER_STATS_FILE",
        text(),
        "Where each server writes its counters as JSON when it ends: its rank goes before the "
        "suffix (stats.json becomes stats.0.json); in a directory the file is server-0.json.",
        listed=False,
    )
    timeline: str | None = option(
        None,
        "BYTEPS_TIMELINE",
        text(),
        "Where each worker and server writes a Chrome trace of its exchanges, and the scheduler "
        "one of its events (see [timeline](timeline.md)): trace.json becomes trace.0.json for "
        "worker 0, trace.server-0.json for server 0 and trace.scheduler.json; in a directory "
        "worker-0.json, timeline-server-0.json and timeline-scheduler.json.",
    )
    metrics_port: str | None = option(
        None,
        "BYTEPS_METRICS_PORT",
        text(),
        "Every process serves [metrics](metrics.md) for Prometheus at this port, or at the next "
        "free one: processes of a host take consecutive ports.",
    )
    metrics_address: str = option(
        "127.0.0.1",
        "BYTEPS_METRICS_ADDRESS",
        text(),
        "Address at which metrics are served. 0.0.0.0: all; whoever reaches the port reads them.",
    )
    summary_file: str | None = option(
        None,
        "BYTEPS_SUMMARY_FILE",
        text(),
        "Where a worker leaves what it has counted, for the last line of bpslaunch, which sets it.",
        listed=False,
    )
