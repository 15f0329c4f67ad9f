"""Prints a report in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from tf_byteps.doctor.examination import HostRow, LinkRow, Report
from tf_byteps.doctor.verdicts import Verdict

_UNKNOWN = "-"
_VERSIONS = "Python, tf_byteps, TensorFlow"


def show(report: Report, verdicts: Sequence[Verdict], console: Console) -> None:
    """Prints tables of hosts and links, and what to fix."""
    names = [row.name for row in report.hosts]
    columns = [_host(row) for row in report.hosts]
    versions = {column[_VERSIONS] for column in columns if _VERSIONS in column}
    if len(versions) == 1:  # a line instead of the widest column
        console.print(f"{_VERSIONS}: {versions.pop()}", markup=False, highlight=False)
        for column in columns:
            column.pop(_VERSIONS, None)
    console.print(_table("", names, columns))
    if report.links:
        ends = [f"{link.source} - {link.target}" for link in report.links]
        console.print(_table("link", ends, [_link(link) for link in report.links]))
    if report.ports:
        counts = ", ".join(f"{count} on {name}" for name, count in report.ports.items())
        text = f"Ports of a job with these workers: {counts} (bpslaunch --ports chooses which)."
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    for title, is_note in (("What to fix", False), ("Worth a note", True)):
        chosen = [each for each in verdicts if each.is_note == is_note]
        if chosen:
            console.print(f"\n{title}", style="bold")
        for each in chosen:
            text = f"* {each.where}: {each.problem}.\n  {each.mend}."
            console.print(text, markup=False, highlight=False, soft_wrap=True)
    if all(each.is_note for each in verdicts):
        console.print("\nNothing to fix.")


def _table(title: str, names: Sequence[str], columns: Sequence[dict[str, str]]) -> Table:
    """One column for each value, one row for each name."""
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), show_edge=False)
    titles = list(dict.fromkeys(key for column in columns for key in column))
    for each in [title or "host", *titles]:
        table.add_column(each, overflow="fold")
    for name, column in zip(names, columns):
        table.add_row(name, *(column.get(key, _UNKNOWN) for key in titles))
    return table


def _host(row: HostRow) -> dict[str, str]:
    if row.error:
        return {"error": row.error}
    facts = row.facts
    return {
        _VERSIONS: ", ".join(facts[key] or "none" for key in ("python", "tf_byteps", "tensorflow")),
        "clock ms": f"{row.clock_offset * 1e3:+.1f} ± {row.clock_error * 1e3:.1f}",
        "files": _limits(facts["nofile_soft"], facts["nofile_hard"]),
        "CPUs": f"{facts['processors']:g}",
        "GB": f"{facts['memory_bytes'] / 1e9:.1f}",
        "copy, sum GB/s": f"{facts['copy_rate'] / 1e9:.1f}, {(facts['sum_rate'] or 0) / 1e9:.1f}",
        "GPUs": str(len(facts["gpus"])),
        "transports": ", ".join(_transports(row)),
    }


def _limits(soft: int | None, hard: int | None) -> str:
    return str(soft) if soft == hard else f"{soft}/{hard}"


def _transports(row: HostRow) -> Iterator[str]:
    """What can carry gradients from this host, or between its workers."""
    yield "TCP"
    if row.facts["rdma"]:
        yield "RDMA"
    if row.facts["memory_transport"]:
        yield "memory"
    if row.facts["gpus"] and row.facts["nccl"]:
        yield "NCCL"


def _link(link: LinkRow) -> dict[str, str]:
    if link.error:
        return {"error": link.error}
    values = link.values
    return {
        "connect ms": f"{values['connect_seconds'] * 1e3:.2f}",
        "latency ms": f"{values['latency_seconds'] * 1e3:.3f}",
        "MB/s": f"{values['rate'] / 1e6:.1f}",
        "MB/s back": f"{values['rate_back'] / 1e6:.1f}",
    }
