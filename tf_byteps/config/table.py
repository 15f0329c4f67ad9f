"""All settings in groups, for the documentation."""

from collections.abc import Iterator

from tf_byteps.config.options import FIELDS, OPTIONS

# By the first setting of each group: they follow the order of the options.
_HEADINGS = {
    "role": "Who a process is",
    "node_host": "Addresses, ports and secrets",
    "colocated_server": "Which processes there are",
    "part_bytes": "Speed",
    "van": "RDMA",
    "connect_timeout": "Time limits",
    "deterministic": "Sums",
    "server_failover": "Failures and elastic jobs",
    "check_weights": "Checks, logs and metrics",
}


def markdown() -> str:
    """All settings for the documentation, under headings."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for name, described in OPTIONS.items():
        if name in _HEADINGS:
            yield from ([] if name == "role" else [""])
            yield from (f"## {_HEADINGS[name]}", "")
        default = FIELDS[name].default
        if described.default_text:
            default = described.default_text
        elif isinstance(default, bool):
            default = int(default)
        elif default is None:
            default = "none"
        unit = f" {described.kind.unit}" if described.kind.unit else ""
        shared = " Same in all processes of a job." if described.shared else ""
        yield f"* **`{described.variable}`** (`{name}`): {described.help}{shared}"
        yield f"  *Default:* {default}{unit}."
    yield "* **`TF_CONFIG`** (several): TensorFlow's description of a cluster: sets role, rank,"
    yield "  number of workers and servers, and the scheduler's address. Other launchers' variables"
    yield "  do the same: see [launchers](launchers.md)."
