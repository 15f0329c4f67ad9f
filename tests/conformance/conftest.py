"""Prints the table of rows and columns at the end."""

import collections
import re

from tests.conformance.sides import COLUMNS

_WORDS = {"passed": "equal", "failed": "DIFFERS", "error": "ERROR"}
_ROW = re.compile(r"conformance/test_rows\.py::(\w+)\[(.*)-(\w+)\]$")
_KINDS = {"test_row": "", "test_row_alone": " (alone)"}


def pytest_terminal_summary(terminalreporter):
    table = collections.defaultdict(dict)
    for outcome, word in _WORDS.items():
        for report in terminalreporter.stats.get(outcome, ()):
            match = _ROW.search(getattr(report, "nodeid", ""))
            if match:
                test, column, name = match.groups()
                table[name][column + _KINDS[test]] = word
    if not table:
        return
    terminalreporter.section("conformance with a single process")
    width = max(map(len, table))
    columns = [column + kind for kind in _KINDS.values() for column in COLUMNS]
    columns = [column for column in columns if any(column in cells for cells in table.values())]
    terminalreporter.write_line("  ".join([" " * width, *columns]))
    for name in sorted(table):
        cells = [table[name].get(column, "-").ljust(len(column)) for column in columns]
        terminalreporter.write_line("  ".join([name.ljust(width), *cells]).rstrip())
