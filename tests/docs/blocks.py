"""The Python blocks of the documentation, and what an HTML comment right above one says of it.

    <!-- given: model, dataset -->     the reader has these: the test makes some
    <!-- given: model; after tf_byteps.init() -->
    <!-- alone -->                     a program that starts workers itself
    <!-- run by tests/... -->          by another test
    <!-- not run: why -->

A block without a comment is a whole program. All others but the last two kinds run, too, on two
workers.
"""

import ast
import builtins
import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
_BLOCK = re.compile(
    r"^(?:<!-- (?P<said>[^\n]*) -->\n+)?```python\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_GIVEN = re.compile(r"given: (?P<names>\w+(?:, \w+)*)(?P<after>; after tf_byteps\.init\(\))?")


@dataclasses.dataclass(frozen=True)
class Block:
    """A Python block.

    Attributes:
        page: path of its page below the repository's root.
        line: where it begins.
        text: the program.
        said: what the comment above it says; "" without one.
    """

    page: str
    line: int
    text: str
    said: str

    @property
    def name(self):
        return f"{self.page}:{self.line}"

    @property
    def given(self):
        """Names that the reader has already."""
        match = _GIVEN.fullmatch(self.said)
        return match["names"].split(", ") if match else []

    @property
    def is_after_init(self):
        match = _GIVEN.fullmatch(self.said)
        return match is not None and match["after"] is not None

    @property
    def is_alone(self):
        return self.said == "alone"

    @property
    def runs_on_workers(self):
        return not self.said or bool(self.given)

    @property
    def run_by(self):
        """The test that runs it, or ""."""
        return self.said.removeprefix("run by ") if self.said.startswith("run by ") else ""

    @property
    def is_understood(self):
        said = bool(self.run_by) or self.said.startswith("not run: ")
        return self.runs_on_workers or self.is_alone or said

    def unknown_names(self):
        """Names that are neither defined in it nor given."""
        defined, used = set(self.given) | set(dir(builtins)), set()
        for node in ast.walk(ast.parse(self.text)):
            if isinstance(node, ast.Name):
                (used if isinstance(node.ctx, ast.Load) else defined).add(node.id)
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                defined.add(node.name)
            elif isinstance(node, ast.arg):
                defined.add(node.arg)
            elif isinstance(node, ast.alias):
                defined.add((node.asname or node.name).partition(".")[0])
        return sorted(used - defined)


def blocks():
    """All of them: those of README and docs."""
    found = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = path.read_text()
        for match in _BLOCK.finditer(text):
            line = text[: match.start("text")].count("\n")
            page = str(path.relative_to(ROOT))
            found.append(Block(page, line, match["text"], match["said"] or ""))
    return found


def block(name):
    """The block of that name."""
    (found,) = (each for each in blocks() if each.name == name)
    return found
