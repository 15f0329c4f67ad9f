"""What the steps of a recorded job wait for: a sentence, and the causes that cost most."""

import collections
from collections.abc import Iterable, Mapping, Sequence

from tf_byteps.timeline import causes
from tf_byteps.timeline.causes import Cause, Rates
from tf_byteps.timeline.parts import InputWait, Part
from tf_byteps.timeline.steps import Step, by_workers, cost_of, steps_of

_SHOWN = 3
_LEAST_SHARE = 0.01  # of a step: what costs less is not worth a line
_LINKS = "check its link and its load, add servers, or compress (docs/compression.md)"
_ADVICE = {
    "compute": "check its CPUs, its threads and its share of the data, or set backup workers "
    "(docs/stragglers.md)",
    "input": "prefetch, or read with more threads (docs/tuning.md)",
    "credit": "unset BYTEPS_CREDIT_BYTES, or raise it (docs/tuning.md)",
    "link": _LINKS,
    "server link": _LINKS,
    "worker link": "check its link and its load, or compress (docs/compression.md)",
    "latency": "check its CPUs and its load; where steps are this short, a larger batch helps",
    "sum": "check its CPUs and its load, or add servers",
    "queue": "check its CPUs, and set BYTEPS_IO_THREADS higher (docs/tuning.md)",
}
# Of which local steps take nothing: who waits for a straggler waits for it in each round, too.
_NOT_EXCHANGE = ("compute", "input")
_LOCAL_STEPS = 32
_OTHER_ADVICE = "add servers, or compress (docs/compression.md)"


def explain(
    parts: Iterable[Part],
    waits: Iterable[InputWait] = (),
    credits: Mapping[int, int] | None = None,
    threads: Mapping[int, int] | None = None,
) -> list[str]:
    """The sentence of the worker whose steps have most exposed communication, and its causes.

    Args:
        parts: those of all workers, by one clock.
        waits: all workers', for input, by that clock.
        credits: what each worker may have in flight, in bytes, as far as it is known.
        threads: with how many each worker computes, as far as it is known.

    Returns:
        Lines. One that says so where no worker has steps that can be measured.
    """
    own_waits = collections.defaultdict(list)
    for wait in waits:
        own_waits[wait.worker].append(wait)
    workers = by_workers(parts)
    steps = {w: steps_of(of_worker, own_waits[w]) for w, of_worker in workers.items()}
    steps = {worker: of_worker for worker, of_worker in steps.items() if of_worker}
    if not steps:
        return ["no step can be measured: there is only one, or steps overlap"]
    return list(_lines(_Job(steps, own_waits, credits or {}, threads or {})))


class _Job:
    """The steps of all workers, and what they cost."""

    def __init__(
        self,
        steps: Mapping[int, Sequence[Step]],
        waits: Mapping[int, Sequence[InputWait]],
        credits: Mapping[int, int],
        threads: Mapping[int, int],
    ) -> None:
        self.steps, self.waits, self.credits, self.threads = steps, waits, credits, threads
        self.has_outer_rounds = any(
            part.tensor.startswith("outer/")
            for of in steps.values()
            for s in of
            for part in s.parts
        )
        self.costs = {w: cost for w, of in steps.items() if (cost := cost_of(of))}
        self.rates = Rates(part for of in steps.values() for step in of for part in step.parts)

    def described(self, cause: Cause) -> str:
        """The cause: who, and by how much."""
        if cause.kind in ("compute", "input"):
            return self._alone(cause)
        if cause.kind == "credit":
            credit = f" of {_size(min(self.credits.values()))}" if self.credits else ""
            return f"the credit{credit}: it is used up, and links are idle"
        if cause.kind == "link":
            own, _ = self.rates.beside_others(cause)
            return f"server {cause.server}: its link is busy, at {_size(own)}/s like others"
        if cause.kind in ("server link", "worker link"):
            kind = cause.kind.split()[0]
            own, others = map(_size, self.rates.beside_others(cause))
            rank = max(cause.server, cause.worker)
            return f"{kind} {rank}: its bytes travel at {own}/s, other {kind}s' at {others}/s"
        if cause.kind == "latency":
            return f"server {cause.server}: its answer takes long, and links are idle"
        if cause.kind == "sum":
            return f"server {cause.server}: its sums take long"
        return f"worker {cause.worker}: parts wait in the stage {cause.kind}"

    def causes(self, worker: int) -> dict[Cause, dict[str, float]]:
        """Those of `causes.of_steps`, by who is to blame."""
        found: dict[Cause, dict[str, float]] = {}
        found_there = causes.of_steps(worker, self.steps, self.waits, self.credits)
        for cause, times in found_there.items():
            blamed = self.rates.whose(cause) if cause.kind == "link" else cause
            by_tensor = found.setdefault(blamed, collections.defaultdict(float))
            for tensor, time in times.items():
                by_tensor[tensor] += time
        return found

    def _alone(self, cause: Cause) -> str:
        took = {worker: getattr(cost, cause.kind) / 1e6 for worker, cost in self.costs.items()}
        own = took.pop(cause.worker, 0.0)
        others = f", others' at most {max(took.values()):.0f} ms" if took else ""
        what = "its compute" if cause.kind == "compute" else "its wait for input"
        line = f"worker {cause.worker}: {what} takes {own:.0f} ms of a step{others}"
        return line + (self._fewer_threads(cause.worker) if cause.kind == "compute" else "")

    def _fewer_threads(self, worker: int) -> str:
        own = self.threads.get(worker)
        most = max((n for other, n in self.threads.items() if other != worker), default=0)
        if own is None or own >= most:
            return ""
        return f"; it has {own} {'thread' if own == 1 else 'threads'}, others up to {most}"


def _lines(job: _Job) -> Iterable[str]:
    worker = max(job.costs, key=lambda each: job.costs[each].exposed)
    cost = job.costs[worker]
    found = job.causes(worker)
    times = {cause: sum(by_tensor.values()) for cause, by_tensor in found.items()}
    waited = ""
    if times and cost.exposed:
        largest = max(times, key=lambda cause: times[cause])
        tensor = max(found[largest], key=lambda name: found[largest][name])
        waited = f" (tensor {tensor} waits for {_waited_for(largest)})"
    has_input = any(job.waits.values())
    yield (
        f"worker {worker}: step {cost.length / 1e6:.0f} ms: compute {cost.compute / 1e6:.0f}"
        f"{'' if has_input else ' (with input)'}, "
        f"exposed communication {cost.exposed / 1e6:.0f}{waited}"
        + (f", input {cost.input / 1e6:.0f}" if has_input else "")
    )
    of_exchange = sum(time for cause, time in times.items() if cause.kind not in _NOT_EXCHANGE)
    # Medians of causes do not add up to that of the whole.
    exchange = cost.exposed * of_exchange / max(1.0, sum(times.values()))
    own_input = Cause("input", worker)
    times[own_input] = times.get(own_input, 0.0) + cost.input
    most = sorted(times, key=lambda each: -times[each])[:_SHOWN]
    costly = [cause for cause in most if times[cause] > _LEAST_SHARE * cost.length]
    if not costly:
        share = (cost.exposed + cost.input) / max(1.0, cost.length)
        yield f"  nothing to gain here: at most {share:.1%} of a step"
    for cause in costly:
        advice = _ADVICE.get(cause.kind, _OTHER_ADVICE)
        yield f"  {times[cause] / 1e6:.2f} ms a step: {job.described(cause)}: {advice}"
    if not job.has_outer_rounds:
        yield from _local_steps(cost.length, exchange)


def _local_steps(step: float, exchange: float) -> Iterable[str]:
    """Whether to exchange less often: another algorithm, so only where a step gets twice as fast.

    Args:
        step: its length.
        exchange: of that, exposed communication that no other worker's compute or input causes.
    """
    if exchange <= step / 2:
        return
    left = step - exchange * (1 - 1 / _LOCAL_STEPS)
    yield (
        f"  local steps would pay: of {step / 1e6:.0f} ms a step, {exchange / 1e6:.0f} ms "
        f"({exchange / step:.0%}) are exposed communication that no straggler causes; with "
        f"BytePSStrategy(local_steps={_LOCAL_STEPS}) a step would take about {left / 1e6:.0f} ms. "
        "This is another algorithm (docs/local_steps.md)"
    )


def _waited_for(cause: Cause) -> str:
    if cause.kind == "credit":
        return "the credit"
    return f"worker {cause.worker}" if cause.server < 0 else f"server {cause.server}"


def _size(number: float) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number:.0f} bytes"
