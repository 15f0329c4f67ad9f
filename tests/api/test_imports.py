"""No package of tf_byteps imports one that imports it back, and no file does.

An import within a function counts, one for type checkers does not. A `__main__` is a program: it
may know everything, and nothing may know it.
"""

import ast
import pathlib

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def _modules(folder):
    """The sources below a folder, by the module's name; compiled modules have a .pyi."""
    files = {}
    for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.pyi")]):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if parts[-1] != "__main__":
            files.setdefault(name, path)
    return files


def _imports(node):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "a relative import"
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        else:
            yield from _imports(child)


def _module_of(name, modules):
    """The module that has a name, or is it; None if it is of another library."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def _arrows(modules, place):
    """Which places import which, as a dict of sets."""
    arrows = {}
    for module, path in modules.items():
        for name in _imports(ast.parse(path.read_text())):
            imported = _module_of(name, modules)
            if imported and place(imported) != place(module):
                arrows.setdefault(place(module), set()).add(place(imported))
    return arrows


def _cycles(arrows):
    """Cycles, each as a list that ends where it begins; empty if there are none."""
    done, found = set(), []

    def visit(node, path):
        if node in path:
            found.append([*path[path.index(node) :], node])
        elif node not in done:
            for following in sorted(arrows.get(node, ())):
                visit(following, [*path, node])
            done.add(node)

    for node in sorted(arrows):
        visit(node, [])
    return found


def _package(module):
    return ".".join(module.split(".")[:2])


def test_packages_have_no_cycle():
    assert _cycles(_arrows(_modules(_ROOT / "tf_byteps"), _package)) == []


def test_files_have_no_cycle():
    assert _cycles(_arrows(_modules(_ROOT / "tf_byteps"), str)) == []


def _layer_of_ops(module):
    """A folder of `tf_byteps.ops`, what all of it stands on, or the files beside the folders."""
    name = module.removeprefix("tf_byteps.ops").lstrip(".").partition(".")[0]
    folders = {path.parent.name for path in (_ROOT / "tf_byteps" / "ops").glob("*/__init__.py")}
    if name in folders:
        return name
    return "foundation" if name in ("autograph", "compiling", "device", "library") else "exchanges"


def test_folders_of_operations_have_no_cycle():
    modules = _modules(_ROOT / "tf_byteps" / "ops")
    modules = {f"tf_byteps.{name}": path for name, path in modules.items()}
    arrows = _arrows(modules, _layer_of_ops)
    assert _cycles(arrows) == []
    assert {"compiled", "compression", "sparse"} <= arrows["exchanges"]


def test_cycles_are_found(tmp_path):
    for name, text in {
        "one/a.py": "import tf.two.b",
        "two/b.py": "def f():\n    from tf.one import c",
        "two/typed.py": "if typing.TYPE_CHECKING:\n    import tf.three",
        "one/c.py": "import os",
        "three.py": "import tf.two.typed",
        "three/__main__.py": "import tf.one",
    }.items():
        path = tmp_path / "tf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    modules = _modules(tmp_path / "tf")
    assert _cycles(_arrows(modules, _package)) == [["tf.one", "tf.two", "tf.one"]]
    assert _cycles(_arrows(modules, str)) == []


def test_what_others_keep_to_themselves_is_imported_in_one_place():
    """JAX's backend of the strategy has an own list: `tf_byteps/strategy/jax`."""
    private = ("keras.src", "tensorflow.python")
    files = _modules(_ROOT / "tf_byteps")
    users = {
        module
        for module, path in files.items()
        if any(name.startswith(private) for name in _imports(ast.parse(path.read_text())))
    }
    assert {user for user in users if not user.startswith("tf_byteps.strategy.jax")} == {
        "tf_byteps.private.keras",
        "tf_byteps.private.keras_jax",
        "tf_byteps.private.keras_tensorflow",
        "tf_byteps.private.tensorflow",
    }
