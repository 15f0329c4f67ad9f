"""Prints the table of docs/strategy_tests.md."""

from tests.foreign import running, table

running.all_programs()
print(table.markdown())
