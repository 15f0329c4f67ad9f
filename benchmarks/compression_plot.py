"""Draws docs/compression/links.png and losses.png from what was measured.

    python -m benchmarks.compression --workers 2 --gigabits 0.1 1 10 0 \\
        --codecs none int8 int4 onebit auto
    python -m benchmarks.compression_plot

Times come from build/bench/compression.json; bits and losses are those of the tables in
docs/compression.md.
"""

import re
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

from benchmarks import report  # noqa: E402
from benchmarks.sessions import ROOT  # noqa: E402

_PAGE = ROOT / "docs" / "compression.md"
_FOLDER = ROOT / "docs" / "compression"
_UNLIMITED = 40  # Gbit/s, where a link without a limit is drawn


def main():
    _FOLDER.mkdir(exist_ok=True)
    for picture in (_links(), _losses()):
        if picture is not None:
            print(f"written to {picture.relative_to(ROOT)}")
    return 0


def _links():
    """Milliseconds of an exchange over the rate of the links, a line for each codec."""
    part = report.published("compression")
    if part is None or not part[2].get("cases"):
        print("build/bench/compression.json has no cases: run benchmarks.compression first")
        return None
    lines = {}
    for case in part[2]["cases"]:
        runs = report.Row.from_json(case["row"]).runs
        lines.setdefault(case["codec"], []).append((case["gigabits"] or _UNLIMITED, runs.median))
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for codec, points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=codec)
    axes.set_xscale("log")
    axes.set_yscale("log")
    rates = sorted({case["gigabits"] or _UNLIMITED for case in part[2]["cases"]})
    axes.set_xticks(rates, ["no limit" if r == _UNLIMITED else f"{r:g}" for r in rates])
    axes.set_xlabel("rate of each link, Gbit/s")
    axes.set_ylabel("64 MB summed over the workers, ms")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    return _save(figure, "links.png")


def _losses():
    """Validation loss above float32's over the bits that a worker sends for an element."""
    page = _PAGE.read_text()
    bits = {"int4:feedback=1": 4.5, "topk:ratio=0.1": 3.7}
    for name, up in re.findall(r'^\| `"([^"]+)"` \| ([0-9.]+) / ', page, re.M):
        bits[name] = float(up)
    rows = re.findall(r'^\| `"([^"]+)"` \| (-?[0-9.]+) % \| (-?[0-9.]+) % \|', page, re.M)
    figure, axes = pyplot.subplots(figsize=(8, 5))
    points = [
        (bits[name], float(sgd), float(adam), name) for name, sgd, adam in rows if name in bits
    ]
    up, sgd, adam, _ = zip(*points, strict=True)
    axes.scatter(up, sgd, marker="o", label="SGD with momentum")
    axes.scatter(up, adam, marker="s", label="Adam")
    for number, (x, *losses, name) in enumerate(sorted(points)):
        axes.plot([x, x], losses, color="lightgray", zorder=0)
        # Neighbours have places of their own for their names.
        place = (-4 if number % 2 else 4, 6)
        axes.annotate(
            name, (x, max(losses)), place, textcoords="offset points", fontsize=7, rotation=50
        )
    axes.axhline(0, color="black", linewidth=0.7)
    axes.set_yscale("symlog", linthresh=0.1)
    axes.set_ylim(-0.7, 40)
    axes.set_xscale("log")
    axes.set_xticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
    axes.set_yticks(
        [-0.5, -0.1, 0, 0.1, 0.5, 1, 5, 20], ["-0.5", "-0.1", "0", "0.1", "0.5", "1", "5", "20"]
    )
    axes.minorticks_off()
    axes.set_xlabel("bits that a worker sends for an element")
    axes.set_ylabel("validation loss above float32's, %")
    axes.grid(alpha=0.3)
    axes.legend()
    return _save(figure, "losses.png")


def _save(figure, name):
    figure.tight_layout()
    figure.savefig(_FOLDER / name, dpi=120)
    pyplot.close(figure)
    return _FOLDER / name


if __name__ == "__main__":
    sys.exit(main())
