"""Prints which files of one C++ class call each other's methods in a circle.

A class whose methods are in several files has parts only if the calls between those files go one
way. Each line names a folder, a class, and the files of one circle: from each of them a chain of
calls leads to all others.

    python tools/call_circles.py [FOLDER ...]
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("cc/worker", "cc/staging", "cc/coordinator", "cc/server")

_COMMENTS_AND_TEXTS = re.compile(r'//[^\n]*|"(?:\\.|[^"\\\n])*"')
# At the beginning of a line, as clang-format leaves definitions: Type Class::Method(
_DEFINITION = re.compile(r"^(?!\s|return\b)[^\n=;(]*?\b(\w+)::(~?\w+)\(", re.MULTILINE)
# Of the object itself: not those of another one, nor of a namespace.
_CALL = re.compile(r"(?:\bthis->|(?<![\w.:>]))(\w+)\(")


def circles(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The circles of a folder, those of its subfolders too.

    Args:
        folder: holds the sources; tests are left out.

    Yields:
        A class, and the names of the files in one circle.
    """
    defined: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    called: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in sorted(folder.rglob("*.cc")):
        if path.name.endswith("_test.cc"):
            continue
        text = _COMMENTS_AND_TEXTS.sub("", path.read_text())
        found = list(_DEFINITION.finditer(text))
        ends = [*(definition.start() for definition in found), len(text)][1:]
        for definition, end in zip(found, ends, strict=True):
            owner, method = definition.groups()
            body = text[definition.end() : end]
            defined[owner][method].add(path.name)
            called[owner][path.name].update(_CALL.findall(body))
    for owner, methods in sorted(defined.items()):
        arrows = {
            name: {other for call in calls for other in methods.get(call, set())} - {name}
            for name, calls in called[owner].items()
        }
        yield from ((owner, circle) for circle in _circles(arrows))


def _circles(arrows: dict[str, set[str]]) -> Iterator[list[str]]:
    reached = {name: _reached(name, arrows) for name in arrows}
    seen: set[str] = set()
    for name in sorted(arrows):
        circle = sorted(other for other in reached[name] if name in reached.get(other, set()))
        if name not in seen and len(circle) > 1:
            yield circle
        seen.update(circle)


def _reached(name: str, arrows: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    ahead = [name]
    while ahead:
        for other in arrows.get(ahead.pop(), set()) - reached:
            reached.add(other)
            ahead.append(other)
    return reached


if __name__ == "__main__":
    for each in sys.argv[1:] or FOLDERS:
        for owner, files in circles(Path(each)):
            print(f"{each}: {owner}: {len(files)} files: {', '.join(files)}")
