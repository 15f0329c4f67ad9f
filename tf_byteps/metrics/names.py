"""The one list of metrics. Names, units and suffixes follow Prometheus' conventions."""

import dataclasses
from typing import Any

COUNTER, GAUGE = "counter", "gauge"

# On every sample.
COMMON_LABELS = ("role", "rank")


@dataclasses.dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        name: as it is scraped, with its unit and a counter's `_total`.
        kind: "counter" or "gauge".
        source: which of `GROUPS` it belongs to.
        key: its name among the engine's values of that source.
        help: a sentence for the documentation.
        scale: what the engine's value is multiplied by.
    """

    name: str
    kind: str
    source: str
    key: str
    help: str
    scale: float = 1


# Who has these, and which labels a sample has besides `COMMON_LABELS`.
GROUPS = {
    "worker": (),
    "local_steps": (),
    "path": ("server", "path"),
    "server": (),
    "lag": ("worker",),
    "hosts": (),
    "scheduler": (),
    "event": ("event", "peer"),
    "job": (),
}
# Groups that the scheduler adds up over all processes.
ADDED_GROUPS = ("worker", "server")


def _list(source: Any, *rows: Any) -> list[Any]:
    return [
        Metric(f"tf_byteps_{name}", kind, source, key, *more) for name, kind, key, *more in rows
    ]


_OF_PROCESSES = (
    *_list(
        "worker",
        ("exchanges_started_total", COUNTER, "started_exchanges", "Exchanges of tensors begun."),
        ("exchanges_ended_total", COUNTER, "exchanges", "Exchanges that ended, well or not."),
        ("exchanges_failed_total", COUNTER, "failed_exchanges", "Of them: those that failed."),
        (
            "exchanging_seconds_total",
            COUNTER,
            "exchanging_seconds",
            "Time with at least one exchange in flight. Its rate is the share of time in which "
            "tensors are exchanged, hidden behind computation or not.",
        ),
        ("steps_total", COUNTER, "steps", "Training steps, but for the first."),
        (
            "step_seconds_total",
            COUNTER,
            "step_seconds",
            "Their time, each from the end of the step before.",
        ),
        (
            "exposed_communication_seconds_total",
            COUNTER,
            "exposed_seconds",
            "Of it: from a step's last gradient to its last sum. Nothing hides this wait.",
        ),
        (
            "input_wait_seconds_total",
            COUNTER,
            "input_seconds",
            "Of it: until batches of `tf.data` were there. What is left is compute.",
        ),
        (
            "samples_total",
            COUNTER,
            "samples",
            "Samples in the batches of these steps, those of this worker.",
        ),
        (
            "unmeasured_steps_total",
            COUNTER,
            "unmeasured_steps",
            "Of the steps: those whose exposed communication is not known, and counted as 0.",
        ),
        ("pushed_parts_total", COUNTER, "pushed_parts", "Parts handed to the network."),
        ("pushed_bytes_total", COUNTER, "pushed_bytes", "Their payload."),
        (
            "uncompressed_bytes_total",
            COUNTER,
            "uncompressed_bytes",
            "Those bytes before compression. Divided by those pushed: the compression ratio.",
        ),
        ("pulled_parts_total", COUNTER, "received_parts", "Replies of servers."),
        ("pulled_bytes_total", COUNTER, "received_bytes", "Their payload."),
        ("in_flight_bytes", GAUGE, "in_flight_bytes", "Pushed, and not taken in by a server yet."),
        ("unanswered_bytes", GAUGE, "unanswered_bytes", "Results to come for what was pushed."),
        ("credit_bytes", GAUGE, "credit_bytes", "How much may be in flight."),
        ("queued_parts", GAUGE, "queued_parts", "Parts that wait for credit."),
        (
            "retried_parts_total",
            COUNTER,
            "retried_parts",
            "Parts pushed again: a connection broke, or the part has moved to another server.",
        ),
        ("row_sum_tensors", GAUGE, "row_sum_tensors", "Tensors whose rows servers add up."),
        ("row_gather_tensors", GAUGE, "row_gather_tensors", "Tensors whose rows are gathered."),
        ("server_failovers_total", COUNTER, "lost_servers", "Servers lost while training went on."),
        ("server_returns_total", COUNTER, "returned_servers", "Lost servers that came back."),
    ),
    *_list(
        "local_steps",
        (
            "outer_rounds_total",
            COUNTER,
            "outer_rounds",
            "Outer rounds that ended (`local_steps`), each fragment's counted.",
        ),
        (
            "late_changes_total",
            COUNTER,
            "late_changes",
            "Outer rounds that ended without this worker (`quorum`), whose change went into its "
            "next one.",
        ),
        (
            "steps_since_outer_round",
            GAUGE,
            "steps_since_round",
            "Local steps since the last of them ended.",
        ),
        (
            "saved_bytes_total",
            COUNTER,
            "saved_bytes",
            "Bytes that local steps have not sent: those of the weights in each step, as gradients "
            "would be, less those of rounds; before compression.",
        ),
        (
            "weight_divergence_ratio",
            GAUGE,
            "divergence",
            "How far the weights were from the average of all workers' before the last outer "
            "round: the norm of the difference, relative to the average's.",
        ),
        (
            "asynchronous_steps_total",
            COUNTER,
            "asynchronous_steps",
            "Steps whose change was sent to servers that hold the weights (`staleness`).",
        ),
        (
            "stale_changes_total",
            COUNTER,
            "stale_changes",
            "Changes of other workers that came between the weights of such a step and its own "
            "change. Divided by those steps: their mean staleness.",
        ),
    ),
    *_list(
        "path",
        ("path_pushed_bytes_total", COUNTER, "pushed_bytes", "Payload over one connection."),
        ("path_pulled_bytes_total", COUNTER, "received_bytes", "Payload of replies over it."),
        ("path_in_flight_bytes", GAUGE, "in_flight_bytes", "Of the bytes in flight, those on it."),
        ("path_reconnects_total", COUNTER, "reconnects", "How often it broke and came again."),
    ),
    *_list(
        "server",
        ("server_received_parts_total", COUNTER, "pushes", "Complete parts of workers."),
        ("server_received_bytes_total", COUNTER, "pushed_bytes", "Their payload."),
        ("server_late_parts_total", COUNTER, "late_pushes", "Parts of rounds that had ended."),
        ("server_replied_parts_total", COUNTER, "replies", "Replies to workers."),
        ("server_replied_bytes_total", COUNTER, "replied_bytes", "Their payload."),
        ("server_rounds_total", COUNTER, "rounds_completed", "Rounds of parts that were summed."),
        (
            "server_sum_bytes",
            GAUGE,
            "accumulator_bytes",
            "Memory for sums, finished rounds and tables.",
        ),
        (
            "server_lacking_table_blocks",
            GAUGE,
            "lacking_blocks",
            "Copies of blocks of tables that this server is to have and has not, or not whole: "
            "these blocks are on one server only.",
        ),
    ),
    *_list(
        "lag",
        (
            "arrival_lag_seconds",
            GAUGE,
            "recent_ms",
            "How much later than the first of its round a worker's part arrives at this server; "
            "of about the last hundred parts.",
            1e-3,
        ),
        ("arrival_lag_max_seconds", GAUGE, "max_ms", "The largest one so far.", 1e-3),
        ("arrivals_total", COUNTER, "contributions", "Parts of that worker."),
        ("arrivals_dropped_total", COUNTER, "dropped", "Of them: dropped (`backup_workers`)."),
    ),
    *_list(
        "hosts",
        ("elsewhere_workers", GAUGE, "workers", "Workers on other hosts than this process."),
        ("elsewhere_servers", GAUGE, "servers", "Servers on other hosts than this process."),
    ),
    *_list(
        "scheduler",
        ("scheduler_lost_servers", GAUGE, "lost_servers", "Servers that are lost now."),
        ("scheduler_failed", GAUGE, "failed", "1 if the job has failed, else 0."),
    ),
    *_list(
        "event",
        (
            "scheduler_event_timestamp_seconds",
            GAUGE,
            "time",
            "When each event of docs/logs.md last happened, and to whom, such as `server 1`.",
            1e-9,
        ),
    ),
)


def _added(metric: Any) -> Any:
    name = metric.name.removeprefix("tf_byteps_")
    return f"job_{name}", metric.kind, metric.name, f"All processes' `{metric.name}`, added up."


_SUMS = _list("job", *(_added(metric) for metric in _OF_PROCESSES if metric.source in ADDED_GROUPS))
METRICS = (
    *_OF_PROCESSES,
    *_list(
        "job",
        ("job_read_processes", GAUGE, "read_processes", "Workers' and servers' that are added up."),
        (
            "job_unread_processes",
            GAUGE,
            "unread_processes",
            "Those that the scheduler cannot reach, or that have not answered it.",
        ),
    ),
    *_SUMS,
)


def markdown() -> str:
    """The table of docs/metrics.md. The sums over a job, whose names follow a rule, are a row."""
    lines = ["| Metric | Kind | More labels | Meaning |", "|---|---|---|---|"]
    for metric in METRICS:
        if metric not in _SUMS:
            labels = ", ".join(f"`{label}`" for label in GROUPS[metric.source])
            lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    example = _SUMS[0].name
    lines.append(
        f"| `tf_byteps_job_…`, such as `{example}` | as the metric |  | "
        "A metric of workers or servers without more labels, added up over all processes. |"
    )
    return "\n".join(lines)
