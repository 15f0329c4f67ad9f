"""Prints the state machines of the engine, as Mermaid draws them, from the tables in their sources.

A state machine is a class with an enum `State` (or `PartState`) and a table of its transitions.
docs/states.md has what this prints; the unit tests beside the sources try each state with each
event.

    python tools/state_diagrams.py [NAME]
"""

import re
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("cc/worker/state", "cc/coordinator/state", "cc/server/state", "cc/staging/state")

_TABLE = re.compile(r"k(\w*)Transitions\[\] = \{(.*?)\n?\s*\};", re.DOTALL)
_ROW = re.compile(r'\{\w+::k(\w+),\s*"([^"]+)",\s*\w+::k(\w+)\}')


def diagrams() -> dict[str, str]:
    """The diagrams, by the table's file and by what has these states.

    Returns:
        For "worker/failover" and the like: the text of a Mermaid state diagram.
    """
    drawn = {}
    for path in (path for folder in FOLDERS for path in sorted((_ROOT / folder).glob("*.h"))):
        whose = path.relative_to(_ROOT / "cc").parts[0]
        for name, table in _TABLE.findall(path.read_text()):
            rows = _ROW.findall(table)
            assert rows, f"{path.name}: k{name}Transitions is not a table"
            joined: dict[tuple[str, str], list[str]] = {}
            for before, event, after in rows:
                joined.setdefault((before, after), []).append(event)
            lines = ["stateDiagram-v2", f"    [*] --> {rows[0][0]}"]
            lines += [
                f"    {before} --> {after}: {', '.join(events)}"
                for (before, after), events in joined.items()
            ]
            drawn[f"{whose}/{path.stem} {name}".strip()] = "\n".join(lines)
    return drawn


if __name__ == "__main__":
    chosen = sys.argv[1:]
    for title, text in diagrams().items():
        if not chosen or title in chosen:
            print(f"%% {title}\n{text}\n")
