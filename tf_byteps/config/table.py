"""The table of all settings, for the documentation."""

from tf_byteps.config.options import FIELDS, OPTIONS


def markdown() -> str:
    """The table of all settings for the documentation."""
    lines = ["| Variable | Field | Default | Unit | Meaning |", "|---|---|---|---|---|"]
    for name, described in OPTIONS.items():
        default = FIELDS[name].default
        if described.default_text:
            default = described.default_text
        elif isinstance(default, bool):
            default = int(default)
        elif default is None:
            default = "none"
        meaning = described.help + (" Same in all processes of a job." if described.shared else "")
        lines.append(
            f"| `{described.variable}` | `{name}` | {default} | {described.kind.unit} | {meaning} |"
        )
    lines.append(
        "| `TF_CONFIG` | several | none |  | TensorFlow's description of a cluster: sets role, "
        "rank, number of workers and servers, and the scheduler's address. Other launchers' "
        "variables do the same: see [launchers](launchers.md). |"
    )
    return "\n".join(lines)
