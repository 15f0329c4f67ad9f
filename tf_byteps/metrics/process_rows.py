"""What one process of a job has answered, last and before, and the row that follows from it."""

from __future__ import annotations

import dataclasses
from typing import Any

from tf_byteps.metrics.reading import Place, Reading, Silence, Where
from tf_byteps.metrics.rows import LOST, RUNS, SILENT, Scheduler, Server, Worker

# The host, the process's ID there, and when it was started.
Identity = tuple[str, float | None, float | None]


def identity_of(address: Where, answer: Reading) -> Identity:
    """Which process has given an answer, whatever its address is now."""
    known = answer.process
    return address.host, known.get("process_id"), known.get("process_start_time_seconds")


class Process:
    """A process that has answered once."""

    def __init__(self, address: Where, first: Reading) -> None:
        self.address = address
        self.now, self._before = first, None
        self.state = RUNS

    @property
    def identity(self) -> Identity:
        """Tells a process that has come to another port from one that has taken its place."""
        return identity_of(self.address, self.now)

    def take(self, answer: Reading | Silence) -> None:
        """Its next answer."""
        if isinstance(answer, Silence):
            self.state = LOST if answer.nobody_listens else SILENT
            self._before = None
            return
        is_same = identity_of(self.address, answer) == self.identity
        self._before = self.now if is_same and self.state == RUNS else None
        # Its places stay when it says goodbye, so that it is not forgotten before it has ended.
        self.now = answer if answer.places else dataclasses.replace(answer, places=self.now.places)
        self.state = RUNS

    def value(self, place: Place, name: str) -> float | None:
        """A gauge, or a counter's count."""
        if self.state != RUNS:
            return None
        return self.now.places[place].get((f"tf_byteps_{name}", ()))

    def rate(self, place: Place, name: str) -> float | None:
        """How much a counter has grown in a second."""
        if self._before is None or place not in self._before.places:
            return None
        key = (f"tf_byteps_{name}_total", ())
        return self._growth(self._before.places[place].get(key), self.now.places[place].get(key))

    def common(self, place: Place) -> dict[str, Any]:
        """What `Row` has."""
        used = "process_cpu_seconds_total"
        before = None if self._before is None else self._before.process.get(used)
        memory = self.now.process.get("process_resident_memory_bytes")
        return {
            "role": place[0],
            "rank": place[1],
            "address": str(self.address),
            "state": self.state,
            "memory_bytes": memory if self.state == RUNS else None,
            "cpu_share": self._growth(before, self.now.process.get(used)),
        }

    def _growth(self, before: float | None, now: float | None) -> float | None:
        if self._before is None or before is None or now is None or now < before:
            return None  # a counter begins anew in each membership epoch
        return (now - before) / (self.now.when - self._before.when)


def _step_time(process: Process, place: Place) -> tuple[float | None, float | None]:
    """The mean time of the last steps, and the share of it that was exposed communication."""
    steps = process.rate(place, "steps")
    spent = process.rate(place, "step_seconds")
    if not steps or not spent:
        return None, None
    exposed = process.rate(place, "exposed_communication_seconds")
    is_known = exposed is not None and process.rate(place, "unmeasured_steps") == 0
    return spent / steps, exposed / spent if is_known else None


def _staleness(process: Process, place: Place) -> float | None:
    steps = process.rate(place, "asynchronous_steps")
    changes = process.rate(place, "stale_changes")
    return changes / steps if steps and changes is not None else None


def worker_row(process: Process, place: Place, lag: float | None) -> Worker:
    step_seconds, exposed_share = _step_time(process, place)
    return Worker(
        **process.common(place),
        exchanges_per_second=process.rate(place, "exchanges_ended"),
        pushed_bytes_per_second=process.rate(place, "pushed_bytes"),
        pulled_bytes_per_second=process.rate(place, "pulled_bytes"),
        exchanging_share=process.rate(place, "exchanging_seconds"),
        step_seconds=step_seconds,
        exposed_share=exposed_share,
        in_flight_bytes=process.value(place, "in_flight_bytes"),
        credit_bytes=process.value(place, "credit_bytes"),
        queued_parts=process.value(place, "queued_parts"),
        lag_seconds=lag if process.state == RUNS else None,
        retried_parts=process.value(place, "retried_parts_total"),
        outer_rounds=process.value(place, "outer_rounds_total"),
        row_sum_tensors=process.value(place, "row_sum_tensors"),
        row_gather_tensors=process.value(place, "row_gather_tensors"),
        late_changes=process.value(place, "late_changes_total"),
        steps_since_round=process.value(place, "steps_since_outer_round"),
        saved_bytes=process.value(place, "saved_bytes_total"),
        divergence=process.value(place, "weight_divergence_ratio"),
        staleness=_staleness(process, place),
    )


def server_row(process: Process, place: Place, connections: int) -> Server:
    return Server(
        **process.common(place),
        received_bytes_per_second=process.rate(place, "server_received_bytes"),
        replied_bytes_per_second=process.rate(place, "server_replied_bytes"),
        rounds_per_second=process.rate(place, "server_rounds"),
        sum_bytes=process.value(place, "server_sum_bytes"),
        connections=connections if process.state == RUNS else None,
        lacking_table_blocks=process.value(place, "server_lacking_table_blocks"),
    )


def scheduler_row(process: Process, place: Place) -> Scheduler:
    failed = process.value(place, "scheduler_failed")
    lost = process.value(place, "scheduler_lost_servers")
    return Scheduler(
        **process.common(place),
        failed=None if failed is None else bool(failed),
        lost_servers=None if lost is None else int(lost),
    )
