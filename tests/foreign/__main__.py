"""Prints the table of docs/strategy_tests.md."""

from tests.foreign import documented

print(documented.markdown())
