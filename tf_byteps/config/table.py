"""The settings of docs/configuration.md, in groups."""

from collections.abc import Iterator

from tf_byteps.config.options import FIELDS, OPTIONS

# By the first setting of each group: they follow the order of the options.
HEADINGS = {
    "role": "Who a process is",
    "node_host": "Addresses and security",
    "part_bytes": "Speed",
    "deterministic": "Sums and weights",
    "connect_timeout": "Time limits and failures",
    "log_level": "Logs and metrics",
}


def markdown() -> str:
    """All listed settings for the documentation, under headings."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for name, described in OPTIONS.items():
        if name in HEADINGS:
            yield from ([] if name == "role" else [""])
            yield from (f"## {HEADINGS[name]}", "")
        if not described.listed:
            continue
        shared = " *Shared.*" if described.shared else ""
        yield f"* **`{described.variable}`** (`{name}`): {described.help}{shared}"
        yield f"  *Default:* {default(name)}."
    yield "* **`TF_CONFIG`** (several): TensorFlow's description of a cluster: sets role, rank,"
    yield "  number of workers and servers, and the scheduler's address. Other launchers' variables"
    yield "  do the same: see [launchers](launchers.md)."


def default(name: str) -> str:
    """A setting's default in a few words."""
    described, value = OPTIONS[name], FIELDS[name].default
    if described.default_text:
        return described.default_text
    if value is None:
        return "none"
    if isinstance(value, (bool, float)):
        value = f"{value:g}"
    return f"{value} {described.kind.unit}".rstrip()
