"""Statistics of repeated runs, and what the machine did meanwhile."""

import dataclasses
import statistics
import time


@dataclasses.dataclass(frozen=True)
class Runs:
    """The values of repeated runs of one thing.

    Attributes:
        values: in the order of the runs.
        unit: of each value.
    """

    values: tuple[float, ...]
    unit: str

    @property
    def median(self):
        return statistics.median(self.values)

    @property
    def least(self):
        return min(self.values)

    @property
    def most(self):
        return max(self.values)

    def map(self, function, unit):
        """Another quantity that follows from each value."""
        return Runs(tuple(function(value) for value in self.values), unit)

    def as_json(self):
        return {
            "median": self.median,
            "min": self.least,
            "max": self.most,
            "unit": self.unit,
            "runs": list(self.values),
        }

    def __str__(self):
        return f"{shown(self.median)} ({shown(self.least)}–{shown(self.most)}) {self.unit}"


def shown(value):
    """A number with three digits that count."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    digits = 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f}"


def ratios(numerators, denominators):
    """The ratio within each pair of runs that took turns."""
    pairs = zip(numerators.values, denominators.values, strict=True)
    return Runs(tuple(a / b for a, b in pairs), "×")


def interleaved(rounds, unit, competitors, advance=lambda: None):
    """Runs competitors in turn, so that what else the machine does hits all of them.

    Args:
        rounds: how often each runs.
        unit: of the values.
        competitors: functions that run once and return a value, by name.
        advance: called after each run.

    Returns:
        The `Runs` of each competitor, by name.
    """
    values = {name: [] for name in competitors}
    names = list(competitors)
    for number in range(rounds):
        # Whoever goes first, finds the caches of the one before: take turns in that, too.
        for name in names if number % 2 == 0 else reversed(names):
            values[name].append(competitors[name]())
            advance()
    return {name: Runs(tuple(runs), unit) for name, runs in values.items()}


class CpuMeter:
    """How busy the machine's CPUs are, and how much of that is some processes' work.

    Args:
        pids: the processes that the measurement is about; they must run until it ends.
    """

    def __init__(self, pids):
        self._pids = pids
        self._busy, self._interrupts, self._total = _machine_ticks()
        self._own = sum(map(_process_ticks, pids))

    def shares(self):
        """Shares of all CPUs' time since the start.

        Returns:
            What was used, and what of it neither these processes nor interrupts (most of which
            move these processes' packets) have used.
        """
        busy, interrupts, total = _machine_ticks()
        own = sum(map(_process_ticks, self._pids)) - self._own + interrupts - self._interrupts
        elapsed = max(1, total - self._total)
        used = busy - self._busy
        return used / elapsed, max(0, used - own) / elapsed


def _machine_ticks():
    with open("/proc/stat") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    idle = fields[3] + fields[4]
    interrupts = fields[5] + fields[6]
    return sum(fields) - idle, interrupts, sum(fields)


def cpu_seconds(pid):
    """The CPU time that a process has used, with all its threads, in user and kernel mode."""
    # The clock of a process, in nanoseconds: Linux makes its number of the process's so.
    return time.clock_gettime(~pid << 3 | 2)


def _process_ticks(pid):
    with open(f"/proc/{pid}/stat") as file:
        # The name in parentheses may contain anything.
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
