"""Prints the state machines of a worker, as Mermaid draws them, from the tables in their sources.

A state machine is a class with an enum `State` (or `PartState`) and a table of its transitions.
docs/states.md has what this prints; the unit tests beside the sources try each state with each
event.

    python tools/state_diagrams.py [NAME]
"""

import re
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_STATES = _ROOT / "cc/worker/state"

_TABLE = re.compile(r"k(\w*)Transitions\[\] = \{(.*?)\n?\s*\};", re.DOTALL)
_ROW = re.compile(r'\{\w+::k(\w+),\s*"([^"]+)",\s*\w+::k(\w+)\}')


def diagrams() -> dict[str, str]:
    """The diagrams, by the name of the table's file and of what has these states.

    Returns:
        For "failover" and the like: the text of a Mermaid state diagram.
    """
    drawn = {}
    for path in sorted(_STATES.glob("*.h")):
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
            drawn[f"{path.stem} {name}".strip()] = "\n".join(lines)
    return drawn


if __name__ == "__main__":
    chosen = sys.argv[1:]
    for title, text in diagrams().items():
        if not chosen or title in chosen:
            print(f"%% {title}\n{text}\n")
