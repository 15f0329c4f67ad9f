"""What the steps of a recorded job wait for: a sentence, and the causes that cost most."""

import collections
from collections.abc import Iterable, Mapping

from tf_byteps.timeline import Part
from tf_byteps.timeline_clocks import align, aligned
from tf_byteps.timeline_report import by_workers, cost_of_steps, of_steps, steps_in_time, steps_of

_SHOWN = 3
_ADVICE = {
    "worker": "see why it is slow, or set backup workers (docs/stragglers.md)",
    "server": "see its link and its load, add servers, or compress (docs/compression.md)",
    "turn": "add servers, or compress (docs/compression.md)",
}


def explain(parts: Iterable[Part]) -> list[str]:
    """The sentence of the worker whose steps have most exposed communication, and its causes.

    Args:
        parts: those of all workers.

    Returns:
        Lines. One that says so where no worker has steps that can be measured.
    """
    parts = list(parts)
    clocks = align(parts)
    workers = by_workers([aligned(part, clocks) for part in parts])
    costs = {worker: cost_of_steps(of_worker) for worker, of_worker in workers.items()}
    known = {worker: cost for worker, cost in costs.items() if cost}
    if not known:
        return ["no step can be measured: there is but one, or steps overlap"]
    worker = max(known, key=lambda each: known[each][1])
    length, exposed = known[worker]
    causes = _causes(worker, workers)
    largest = f" ({causes[0][0]})" if causes and exposed else ""
    lines = [
        f"worker {worker}: step {length / 1e6:.0f} ms: compute {(length - exposed) / 1e6:.0f} "
        f"(with input), exposed communication {exposed / 1e6:.0f}{largest}"
    ]
    for what, kind, time in causes[:_SHOWN]:
        lines.append(f"  {time / 1e6:.2f} ms a step: {what}: {_ADVICE[kind]}")
    return lines


def _causes(worker: int, workers: Mapping[int, list[Part]]) -> list[tuple[str, str, float]]:
    """What the last tensor of each step waited for after its last gradient, the longest first."""
    arrived = collections.defaultdict(dict)
    for of_worker in workers.values():
        for part in of_worker:
            if part.arrived:
                arrived[part.tensor, part.part, part.round][part.arrived] = part.worker
    ends = {end: last for _, last, end in steps_in_time(workers[worker])}
    waits = collections.defaultdict(list)
    for step in steps_of(of_steps(workers[worker])):
        part = max(step, key=lambda part: (part.done, part.reply_received or 0))
        last = ends.get(part.done)
        stages = [] if last is None else part.stages()
        lengths = [(max(0, end - max(begin, last or 0)), name) for name, begin, end in stages]
        if not lengths:
            continue
        time, stage = max(lengths)
        who = arrived[part.tensor, part.part, part.round]
        latest = who[max(who)] if who else worker
        if stage == "sum" and latest != worker:
            cause = f"tensor {part.tensor} waits for worker {latest}", "worker"
        elif stage in ("push", "sum", "pull"):
            cause = f"tensor {part.tensor} waits for server {part.server}", "server"
        else:
            cause = f"tensor {part.tensor} waits in its stage {stage}", "turn"
        waits[cause].append(time)
    steps = max(1, len(ends))
    found = [(what, kind, sum(times) / steps) for (what, kind), times in waits.items()]
    return sorted(found, key=lambda cause: -cause[2])
