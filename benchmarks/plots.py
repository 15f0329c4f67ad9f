"""The figures as pictures: build/bench/*.png."""

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

from benchmarks import report  # noqa: E402


def draw_all():
    """Draws what has been measured; returns the paths of the pictures."""
    pictures = [_goodput(), _bars("steps", "training step", "steps")]
    return [picture for picture in pictures if picture is not None]


def _goodput():
    """Goodput over k for each model and number of workers."""
    part = report.published("goodput")
    if part is None:
        return None
    lines = {}
    for case in part[2]["cases"]:
        runs = report.Row.from_json(case["row"]).runs
        point = (case["servers"], runs.median, runs.least, runs.most)
        lines.setdefault((case["model"], case["workers"]), []).append(point)
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for number, ((model, workers), points) in enumerate(sorted(lines.items())):
        k, median, least, most = zip(*sorted(points))
        below = [m - low for m, low in zip(median, least)]
        above = [high - m for m, high in zip(median, most)]
        shifted = [servers + 0.04 * number for servers in k]
        axes.errorbar(
            shifted, median, [below, above], marker="o", capsize=3, label=f"{model}, n = {workers}"
        )
    axes.axhline(1, color="black", linestyle="--", label="t_opt")
    axes.set_xlabel("k, additional server hosts")
    axes.set_ylabel("t_opt / measured time")
    axes.set_ylim(0, 1.1)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return _save(figure, "goodput.png")


def _bars(part, figure_name, file):
    """A bar for each row of a figure."""
    published = report.published(part)
    rows = [r for r in published[1] if r.figure == figure_name and r.runs] if published else []
    if not rows:
        return None
    figure, axes = pyplot.subplots(figsize=(8, 0.5 * len(rows) + 1.2))
    for place, row in enumerate(reversed(rows)):
        runs = row.runs
        error = [[runs.median - runs.least], [runs.most - runs.median]]
        color = "tab:blue" if "tf_byteps" in row.case else "tab:gray"
        axes.barh(place, runs.median, xerr=error, color=color, capsize=3)
    axes.set_yticks(range(len(rows)), [row.case for row in reversed(rows)], fontsize=8)
    axes.set_xlabel(f"{figure_name}, {rows[0].runs.unit} (median, least and most)")
    axes.grid(axis="x", alpha=0.3)
    return _save(figure, f"{file}.png")


def _save(figure, name):
    path = report.FOLDER / name
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path
