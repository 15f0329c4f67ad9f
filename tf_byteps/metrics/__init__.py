"""What a process tells Prometheus and bpstop: `names` has the list, `endpoint` serves it.

The engine counts in any case. Nothing here runs until somebody asks the endpoint: bpstop at a local
socket, Prometheus at `BYTEPS_METRICS_PORT`. `python -m tf_byteps.metrics` prints the list for
docs/metrics.md.
"""
