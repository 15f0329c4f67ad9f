"""What a process tells Prometheus: `names` has the list, `endpoint` serves it.

The engine counts in any case. Nothing here runs until somebody asks the endpoint, and
`BYTEPS_METRICS_PORT` opens it. `python -m tf_byteps.metrics` prints the list for docs/metrics.md.
"""
