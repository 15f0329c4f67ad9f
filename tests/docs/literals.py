"""The texts in sources: what a function's string literals say, one after the other."""

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
_CPP_TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\])'|"((?:[^"\\]|\\.)*)\"""", re.DOTALL)
_FORMAT = re.compile(r"%[-\d.]*[a-z]")


def of_cpp(source):
    """The joined literals of each function, or of what is between two."""
    return [
        re.sub(r"\\(.)", r"\1", "".join(text for text in _CPP_TOKEN.findall(chunk)))
        for chunk in re.split(r"^\}", source, flags=re.MULTILINE)
    ]


def of_python(source):
    """The joined literals of each function and statement, without what is put in between."""
    return ["".join(_texts(part)) for part in _parts(ast.parse(source))]


def _parts(node):
    for part in node.body:
        if isinstance(part, ast.ClassDef):
            yield from _parts(part)
        else:
            yield part


def _texts(node):
    """Literals in the order of the source, without docstrings."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            if not isinstance(node, ast.Expr):
                yield _FORMAT.sub("", child.value)
        else:
            yield from _texts(child)


def of_all_sources():
    """Those of the package, the engine and the build."""
    for folder, pattern, read in (
        ("tf_byteps", "*.py", of_python),
        ("tools", "*.py", of_python),
        (".", "setup.py", of_python),
        ("cc", "*.cc", of_cpp),
        ("cc", "*.h", of_cpp),
    ):
        paths = (ROOT / folder).rglob(pattern) if folder != "." else [ROOT / pattern]
        for path in paths:
            if not path.stem.endswith("_test"):
                yield from read(path.read_text())
