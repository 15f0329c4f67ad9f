"""How many parameters of the packages that compute with gradients are a bare `Any`."""

import ast
import pathlib

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2] / "tf_byteps"

# Package -> the most of 100 parameters. Lower a number when you can.
_MOST = {"gradients": 3, "ops": 3, "strategy": 5, "keras": 3}
# A backend of its own, with types of its own.
_LEFT_OUT = _ROOT / "strategy/jax"


def _annotations(source):
    """The annotations of all parameters in a source, as text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            given = node.args
            every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
            yield from (ast.unparse(each.annotation) for each in every if each and each.annotation)


@pytest.mark.parametrize("package", _MOST)
def test_few_parameters_are_anything(package):
    paths = [path for path in (_ROOT / package).rglob("*.py") if _LEFT_OUT not in path.parents]
    sources = [path.read_text() for path in paths]
    found = [each for source in sources for each in _annotations(source)]
    assert len(found) > 40
    assert 100 * found.count("Any") <= _MOST[package] * len(found)


def test_what_counts():
    source = "def f(a: Any, *b: list[Any], c: int = 0, **d: Any): ...\nclass C:\n  def g(self): ..."
    assert sorted(_annotations(source)) == ["Any", "Any", "int", "list[Any]"]
