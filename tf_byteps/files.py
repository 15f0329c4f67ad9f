"""Files that processes of a job write: one for each, whole or not at all."""

import os
from collections.abc import Iterable


def path_for(configured: str, role: str, rank: int) -> str:
    """The file of one process: in a directory "worker-0.json", else the rank before the suffix.

    Args:
        configured: what the user named, a file or a directory.
        role: "worker" or "server".
        rank: its rank.
    """
    if os.path.isdir(configured) or configured.endswith("/"):
        return os.path.join(configured, f"{role}-{rank}.json")
    root, suffix = os.path.splitext(configured)
    return f"{root}.{rank}{suffix}"


def write_whole(path: str, lines: Iterable[str]) -> None:
    """Writes an iterable of lines; whoever waits for the file never sees half of it."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(f"{path}.{os.getpid()}.part", "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)
    os.replace(file.name, path)
