"""Figures with their targets: shown as tables, written as JSON to build/bench, summed up."""

import dataclasses
import json
import platform

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.measure import Runs, shown
from benchmarks.sessions import ROOT

FOLDER = ROOT / "build" / "bench"
# Wide enough for a table in a log file, too.
console = Console(width=None if Console().is_terminal else 150)


@dataclasses.dataclass
class Row:
    """One figure.

    Attributes:
        figure: what is measured.
        case: under which circumstances.
        runs: the measured values; None: it could not be measured, and `note` says why.
        target: what is to be reached, as (comparison, limit), such as (">=", 0.95); None: the
            figure is there for comparison only.
        note: what must be known to read it.
        broken: why the measurement does not count, or "".
        goal: which line of the list of goals the row belongs to, or "".
    """

    figure: str
    case: str
    runs: Runs | None
    target: tuple[str, float] | None = None
    note: str = ""
    broken: str = ""
    goal: str = ""

    @property
    def passed(self):
        """True, False, or None if there is no target."""
        if self.target is None:
            return None
        if self.runs is None or self.broken:
            return False
        comparison, limit = self.target
        reached = self.runs.median
        return reached >= limit if comparison == ">=" else reached <= limit

    @property
    def verdict(self):
        if self.runs is None:
            return "not measured"
        if self.broken:
            return "does not count"
        return {True: "reached", False: "not reached", None: ""}[self.passed]

    def cells(self):
        target = ""
        if self.target is not None:
            sign = {">=": "≥", "<=": "≤"}[self.target[0]]
            target = f"{sign} {shown(self.target[1])}"
        value = str(self.runs) if self.runs is not None else "–"
        note = "; ".join(filter(None, [self.broken, self.note]))
        return [self.figure, self.case, value, target, self.verdict, note]

    def as_json(self):
        fields = dataclasses.asdict(self)
        fields["runs"] = self.runs.as_json() if self.runs is not None else None
        fields["passed"] = self.passed
        return fields

    @classmethod
    def from_json(cls, fields):
        fields = {name: value for name, value in fields.items() if name != "passed"}
        if fields["runs"] is not None:
            fields["runs"] = Runs(tuple(fields["runs"]["runs"]), fields["runs"]["unit"])
        if fields["target"] is not None:
            fields["target"] = tuple(fields["target"])
        return cls(**fields)


HEADINGS = ["figure", "case", "median (min–max)", "to reach", "verdict", "note"]
_COLORS = {"reached": "green", "not reached": "red", "not measured": "yellow"}


def table(title, rows):
    """The rows as a `rich.table.Table`."""
    result = Table(title=title, title_justify="left", title_style="bold")
    for heading in HEADINGS:
        result.add_column(heading, no_wrap=heading in ("to reach", "verdict"))
    for row in rows:
        cells = row.cells()
        color = _COLORS.get(row.verdict, "yellow" if row.broken else None)
        if color:
            cells[4] = f"[{color}]{cells[4]}[/{color}]"
        result.add_row(*cells)
    return result


def markdown(rows):
    """The rows as a Markdown table."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += [
        "| " + " | ".join(cell.replace("|", "/") for cell in row.cells()) + " |" for row in rows
    ]
    return "\n".join(lines)


def publish(part, title, rows, details=None):
    """Prints a part's rows and writes them, with its details, to build/bench/<part>.json.

    Returns:
        True if every target was reached.
    """
    console.print(table(title, rows))
    FOLDER.mkdir(parents=True, exist_ok=True)
    content = {
        "title": title,
        "machine": machine(),
        "rows": [row.as_json() for row in rows],
        "details": details or {},
    }
    path = FOLDER / f"{part}.json"
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    console.print(f"written to {path.relative_to(ROOT)}")
    return all(row.passed is not False for row in rows)


def forget(part):
    """Removes what an earlier run of a part has published."""
    (FOLDER / f"{part}.json").unlink(missing_ok=True)


def published(part):
    """(title, rows, details) of a part that has run before; None if it has not."""
    path = FOLDER / f"{part}.json"
    if not path.exists():
        return None
    content = json.loads(path.read_text())
    return content["title"], [Row.from_json(row) for row in content["rows"]], content["details"]


def machine():
    """What the figures were measured on."""
    with open("/proc/cpuinfo") as file:
        models = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": len(models),
        "kernel": platform.release(),
    }


def progress():
    """A progress bar; use as a context manager, see `rich.progress.Progress`."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
