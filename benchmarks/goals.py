"""What is to be reached, and what has been: the last table of `make bench`, and performance.md."""

from rich.table import Table

from benchmarks import report

# The goal of rows, the figure in words, what is to be reached.
GOALS = (
    ("uniform", "goodput / t_opt, uniform tensors, n = 4, k = 0, 2, 4, 1 Gbit/s", "≥ 95 %"),
    ("models", "the same with the tensors of ResNet-50, VGG-16, BERT-large", "≥ 93 %"),
    (
        "cluster peers",
        "4 workers + 4 servers against MultiWorkerMirroredStrategy and torch Gloo, 1 Gbit/s, 64 MB",
        "≥ 1.4 × the better one",
    ),
    ("compression", "64 MB with int8, 4 workers + 4 servers, 1 Gbit/s", "≤ 170 ms"),
    ("loopback", "loopback, 2 workers, 64 MB and 256 MB, against torch Gloo", "≥ 2 ×"),
    (
        "steps",
        "step of a perceptron of 25 M and 100 M parameters, 2 workers on loopback",
        "≥ 4 × MultiWorkerMirroredStrategy, ≥ 1.3 × torch DistributedDataParallel",
    ),
    ("chain", "4 KB: 200 dependent push_pulls in a tf.function, each", "≤ 2 × a bare exchange"),
    ("many tensors", "161 gradients of ResNet-50 against one tensor of 102 MB", "≤ 1.3 ×"),
    (
        "priority",
        "64 KB of highest priority behind 16 × 4 MB of lowest, 100 Mbit/s",
        "≤ (credit + 1 part)/B + 2 round trips; must not without priorities",
    ),
    ("server CPU", "server, CPU per GB pushed, 4 workers", "≤ 1.5 × receive + sum + send"),
    ("server memory", "server memory", "≤ 2 × the model + 100 MB"),
    ("worker memory", "what the engine adds to a worker", "≤ 64 MB"),
    ("idle", "an idle job", "≤ 1 % of a core"),
    (
        "overlap",
        "step with overlap, 2 workers + 2 servers, compute = 0.5, 1, 2 × t_opt",
        "plain ≤ 1.1 × max(compute, t_first + t_opt); cross_step ≤ 1.1 × max(compute, t_opt)",
    ),
    (
        "local steps",
        "32 local steps of 50 ms with 20 MB of weights, 4 workers, 1 Gbit/s; int8, too",
        "≥ 95 % of computing alone",
    ),
    ("quorum", "one of 4 workers 4 times slower, a quorum of 3: time of the others", "+ ≤ 5 %"),
    (
        "asynchronous",
        "a character model on 2 workers, one 3 times slower: rows/s of synchronous; loss above it",
        "≥ 1.6 ×; ≤ 2 %",
    ),
)
PARTS = (
    "goodput",
    "cluster_peers",
    "compression",
    "loopback",
    "chain",
    "cost",
    "priority",
    "steps",
    "overlap",
    "arrivals",
    "slow_links",
)
_HEADINGS = ("figure", "to reach", "measured", "verdict")


def summary_rows():
    """A row of texts for each goal, from what the parts have written to build/bench."""
    rows = {goal: [] for goal, _, _ in GOALS}
    for part in PARTS:
        for row in (report.published(part) or ("", [], {}))[1]:
            if row.goal:
                rows[row.goal].append(row)
    return [(figure, reach, *_outcome(rows[goal])) for goal, figure, reach in GOALS]


def _outcome(rows):
    """What was measured, in a few words, and the verdict."""
    if not rows:
        return "–", "not measured"
    measured = [row for row in rows if row.runs is not None]
    values = "; ".join(f"{report.shown(row.runs.median)} {row.runs.unit}" for row in measured)
    if all(row.passed for row in rows):
        return values, "reached"
    verdicts = {row.verdict for row in rows if not row.passed}
    if len(verdicts) == 1 and len(rows) == len(measured):
        count = sum(not row.passed for row in rows)
        return values, f"{verdicts.pop()}, {count} of {len(rows)}"
    return values or "–", " / ".join(sorted(verdicts))


def print_summary():
    """Prints the table of all goals; returns whether all were reached."""
    rows = summary_rows()
    table = Table(title="What is to be reached", title_justify="left", title_style="bold")
    for heading in _HEADINGS:
        table.add_column(heading)
    for row in rows:
        color = "green" if row[3] == "reached" else "red"
        table.add_row(*row[:3], f"[{color}]{row[3]}[/{color}]")
    report.console.print(table)
    return all(row[3] == "reached" for row in rows)


def write_markdown(pictures):
    """Writes build/bench/performance.md: the goals, then every part's table."""
    machine = report.machine()
    lines = [
        "# Performance",
        "",
        f"Measured by `make bench` on {machine['cores']} cores ({machine['cpu']}), Linux "
        f"{machine['kernel']}: median, least and most of the runs.",
        "",
        "| " + " | ".join(_HEADINGS) + " |",
        "|" + "---|" * len(_HEADINGS),
    ]
    lines += ["| " + " | ".join(row) + " |" for row in summary_rows()]
    lines += [f"\n![{picture.stem}]({picture.name})" for picture in pictures]
    for part in PARTS:
        published = report.published(part)
        if published is not None:
            lines += ["", f"## {published[0]}", "", report.markdown(published[1])]
    path = report.FOLDER / "performance.md"
    path.write_text("\n".join(lines) + "\n")
    return path
