"""Prints the table of rows and modes at the end."""

import collections

from tests.conformance.sides import MODES

_WORDS = {
    "passed": "equal",
    "failed": "DIFFERS",
    "error": "ERROR",
}


def pytest_terminal_summary(terminalreporter):
    table = collections.defaultdict(dict)
    for outcome, word in _WORDS.items():
        for report in terminalreporter.stats.get(outcome, ()):
            _, _, row = getattr(report, "nodeid", "").partition(
                "conformance/test_rows.py::test_row["
            )
            mode, _, name = row.rstrip("]").partition("-")
            if name:
                table[name][mode] = word
    if not table:
        return
    terminalreporter.section("conformance with a single process")
    width = max(map(len, table))
    terminalreporter.write_line("  ".join([" " * width, *MODES]))
    for name in sorted(table):
        cells = [table[name].get(mode, "-").ljust(len(mode)) for mode in MODES]
        terminalreporter.write_line("  ".join([name.ljust(width), *cells]).rstrip())
