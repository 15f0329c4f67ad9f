"""docs/api.md has every public name."""

import importlib.util
import pathlib
import pkgutil
import re

import pytest

import tf_byteps
import tf_byteps.keras
from tf_byteps import elastic, errors, ops

_PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text()
_SHOWN = set(re.findall(r"^::: (\S+)$", _PAGE, re.MULTILINE))
_OTHERS = _PAGE.partition("| other name |")[2].partition("\n\n")[0]
_OTHER_NAMES = {name.rpartition(".")[2] for name in re.findall(r"`([\w.]+)`", _OTHERS)}


def _of_jax():
    found = importlib.util.find_spec("jaxlib")
    return tf_byteps.jax.__all__ if found else []


def _errors():
    return [name for name, value in vars(errors).items() if isinstance(value, type)]


@pytest.mark.parametrize(
    "module, names",
    [
        ("tf_byteps", set(tf_byteps.__all__) - {"__version__"}),
        ("tf_byteps.keras", tf_byteps.keras.__all__),
        ("tf_byteps.keras.callbacks", tf_byteps.keras.callbacks.__all__),
        ("tf_byteps.keras.optimizers", tf_byteps.keras.optimizers.__all__),
        ("tf_byteps.elastic", elastic.__all__),
        ("tf_byteps.ops", ops.__all__),
        ("tf_byteps.jax", _of_jax()),
        ("tf_byteps.errors", _errors()),
    ],
)
def test_every_public_name_is_there(module, names):
    # Most are names of the package as well, which shows them once.
    shown = _SHOWN | {f"{module}.{name}" for name in names if f"tf_byteps.{name}" in _SHOWN}
    shown |= {
        f"tf_byteps.keras.{name}" for name in ("callbacks", "elastic", "layers", "optimizers")
    }  # modules
    missing = [name for name in names if f"{module}.{name}" not in shown]
    assert sorted(set(missing) - _OTHER_NAMES) == []


@pytest.mark.parametrize("name", sorted(_SHOWN))
def test_every_name_there_exists(name):
    module, _, member = name.rpartition(".")
    if module == "tf_byteps.ray":
        pytest.importorskip("ray", reason="make test-ray installs Ray")
    if module == "tf_byteps.jax":
        pytest.importorskip("jaxlib", reason="jax is not installed")
    assert getattr(pkgutil.resolve_name(module), member).__doc__
