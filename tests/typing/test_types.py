"""Type checkers find nothing wrong where a program uses public names, and much where it errs."""

import ast
import pathlib
import subprocess
import sysconfig

import pytest

import tf_byteps
import tf_byteps.keras
from tf_byteps import _engine, elastic, errors, launch, ops, strategy, timeline

_FOLDER = pathlib.Path(__file__).resolve().parent
_ROOT = _FOLDER.parents[1]
_USED = (_FOLDER / "public_names.py").read_text()
_CHECKER = pathlib.Path(sysconfig.get_path("scripts")) / "basedpyright"

pytestmark = pytest.mark.time_limit(180)


def _words(text):
    """All names that a program's code has, not its comments and strings."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found.add(node.name.rpartition(".")[2])
        elif isinstance(node, ast.Name):
            found.add(node.id)
    return found


def _of_jax():
    pytest.importorskip("jaxlib", reason="jax is not installed")
    return tf_byteps.jax.__all__


def _errors():
    return [name for name, value in vars(errors).items() if isinstance(value, type)]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(lambda: dir(tf_byteps), id="tf_byteps"),
        pytest.param(lambda: tf_byteps.keras.__all__, id="keras"),
        pytest.param(lambda: tf_byteps.keras.callbacks.__all__, id="callbacks"),
        pytest.param(lambda: elastic.__all__, id="elastic"),
        pytest.param(lambda: ops.__all__, id="ops"),
        pytest.param(lambda: strategy.__all__, id="strategy"),
        pytest.param(lambda: timeline.__all__, id="timeline"),
        pytest.param(_errors, id="errors"),
        pytest.param(lambda: ["run"] if launch.run else [], id="launch"),
    ],
)
def test_every_public_name_is_used(names):
    assert sorted(set(names()) - _words(_USED)) == []


def _check(path):
    command = [str(_CHECKER), "--project", str(_ROOT), str(path)]
    return subprocess.run(command, capture_output=True, text=True, cwd=_ROOT, timeout=150).stdout


def test_nothing_is_wrong_with_the_uses():
    assert "0 errors" in _check(_FOLDER / "public_names.py")


WRONG = """
import keras
import tf_byteps as bps

bps.init("worker")
bps.rank() + "1"
bps.puch_pull(1.0)
bps.push_pull(1.0, priority="high")
bps.BytePSStrategy(backup_workers="one")
bps.DistributedOptimizer(keras.optimizers.SGD(), sparse_as_dense=3)
bps.launch.run(print, np="2")
bps.Config.from_environment(3)
"""


def test_mistakes_are_found(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(WRONG)
    printed = _check(program)
    lines = WRONG.splitlines()
    mistakes = [number for number, line in enumerate(lines, 1) if line.startswith("bps.")]
    found = [number for number in mistakes if f"train.py:{number}:" in printed]
    assert found == mistakes, printed


def _names(members):
    """Of functions and attributes. Docstrings have none."""
    for member in members:
        if isinstance(member, ast.FunctionDef):
            yield member.name
        elif isinstance(member, ast.AnnAssign):
            yield ast.unparse(member.target)


def test_the_engine_has_what_its_types_say():
    tree = ast.parse((_ROOT / "tf_byteps" / "_engine.pyi").read_text())
    described = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            described[node.name] = set(_names(node.body))
        else:
            described.update((name, set()) for name in _names([node]))
    assert described.keys() == {name for name in vars(_engine) if not name.startswith("_")}
    for name, members in described.items():
        value = getattr(_engine, name)
        if isinstance(value, type) and name != "EngineError":
            present = {each for each in vars(value) if not each.startswith("_")}
            assert present == {each for each in members if not each.startswith("_")}, name
