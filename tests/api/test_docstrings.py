"""Every public name says what it takes, returns and raises, and how it is used."""

import ast
import dataclasses
import inspect
import textwrap

import pytest

import tf_byteps
import tf_byteps.keras
from tf_byteps import strategy


def _public():
    """{name: function or class} of all that a program may use."""
    found = {}
    for prefix, module in (
        ("", tf_byteps),
        ("keras.", tf_byteps.keras),
        ("keras.callbacks.", tf_byteps.keras.callbacks),
        ("keras.callbacks.", tf_byteps.keras.leaving),
        ("strategy.", strategy),
        ("elastic.", tf_byteps.elastic),
    ):
        # Modules without the list have no private classes.
        names = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if inspect.isclass(value) and value.__module__ == module.__name__
        ]
        for name in names:
            value = getattr(module, name)
            if inspect.isfunction(value) or inspect.isclass(value):
                found[prefix + name] = value
    return found


PUBLIC = _public()
METHODS = {
    f"{name}.{method}": value
    for name, cls in PUBLIC.items()
    if inspect.isclass(cls)
    for method, value in vars(cls).items()
    if inspect.isfunction(value) and not method.startswith("_")
}
PUBLIC.update(METHODS)


def _section(doc, title):
    """The indented text below `title:`, or on its line; `None` if there is no such section."""
    lines = doc.split("\n")
    for index, line in enumerate(lines):
        if line.startswith(f"{title}:"):
            rest = [line.removeprefix(f"{title}:")]
            for following in lines[index + 1 :]:
                if following and not following.startswith((" ", ">>>", "```")):
                    break
                rest.append(following)
            return "\n".join(rest).strip()
    return None


def _returns_something(function):
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    return any(
        isinstance(node, ast.Return)
        and node.value is not None
        and not (isinstance(node.value, ast.Constant) and node.value.value is None)
        for node in ast.walk(tree)
    )


def _is_described_elsewhere(name, value, doc):
    """Callbacks' methods are called by Keras, some of ours are another library's, and the fields of
    a dataclass stand in docs/configuration.md. An exception is what it says."""
    return (
        name.rpartition(".")[2].startswith("on_")
        or doc.startswith("Like `tf.")
        or dataclasses.is_dataclass(value)
        or (inspect.isclass(value) and issubclass(value, Exception))
    )


@pytest.mark.parametrize("name", PUBLIC)
def test_docstring(name):
    value = PUBLIC[name]
    # A class has its own: not that of the class that it extends.
    doc = (vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__) or ""
    doc = inspect.cleandoc(doc)
    assert doc, "no docstring"
    if _is_described_elsewhere(name, value, doc):
        return
    takes = []
    if inspect.isfunction(value) or "__init__" in vars(value):
        takes = [each for each in inspect.signature(value).parameters if each != "self"]
    arguments = _section(doc, "Args") or ""
    assert [each for each in takes if f"{each}: " not in arguments] == [], "not described"
    is_function = inspect.isfunction(value)
    assert not (is_function and _returns_something(value)) or _section(doc, "Returns")
    if name not in METHODS and (takes or is_function):
        assert _section(doc, "Example"), "no example"
    if name not in METHODS and takes:
        assert _section(doc, "Raises"), "says not what it raises"
