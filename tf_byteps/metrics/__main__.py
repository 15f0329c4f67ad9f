"""Prints the table of docs/metrics.md."""

from tf_byteps.metrics.names import markdown

print(markdown())
