"""Functions of Keras and TensorFlow that are not those that tf_byteps was tested with."""

import functools
import json
import logging
import pathlib
import subprocess
import sys

import pytest

from tests.cluster import clean_environment
from tf_byteps import signatures
from tf_byteps.errors import BytePSError
from tf_byteps.recorded_signatures import SIGNATURES
from tools import record_signatures

_ROOT = pathlib.Path(__file__).resolve().parents[1]
# How many functions are replaced: each depends on internals. Lower a number when you can.
_MOST = {"tensorflow": 79, "jax": 45}
_APPLY = ("BaseOptimizer.apply", ("(self, grads, trainable_variables=None)",))


class BaseOptimizer:
    """Another version's: it has a new parameter, and lost a function."""

    __module__ = "keras.src.optimizers.base_optimizer"

    def apply(self, grads, trainable_variables=None, scale=1.0):
        return grads, trainable_variables, scale


@pytest.fixture(name="recorded")
def _recorded(monkeypatch):
    monkeypatch.setattr(signatures, "SIGNATURES", dict([_APPLY]))


def takes_all(original, *args, **kwargs):
    return original(*args, **kwargs)


def takes_two(original, self, grads, trainable_variables=None):
    return original(self, grads, trainable_variables)


@pytest.mark.usefixtures("recorded")
def test_other_parameters_are_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "tf_byteps"):
        signatures.check([(BaseOptimizer, "apply", takes_all)])
    (message,) = caplog.messages
    assert "not tested with Keras" in message
    assert "BaseOptimizer.apply(self, grads, trainable_variables=None, scale=None)" in message
    assert "Install keras>=3.12,<3.16" in message


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    "name, replacement, found",
    [
        ("apply", takes_two, "BaseOptimizer.apply takes (self, grads, trainable_variables=None, "),
        ("apply_gradients", takes_all, "BaseOptimizer.apply_gradients does not exist"),
    ],
)
def test_what_cannot_be_replaced_is_an_error(name, replacement, found):
    with pytest.raises(BytePSError, match="does not fit this tf_byteps") as caught:
        signatures.check([(BaseOptimizer, name, replacement)])
    assert found in str(caught.value)
    assert "install keras>=3.12,<3.16" in str(caught.value)


_CHECK = """
import json, record_signatures
from tf_byteps import signatures
for owner, name, replacement in record_signatures.replaced_functions():
    assert replacement.__module__ in signatures.PURPOSES, replacement
print(json.dumps(record_signatures.installed_forms()))
"""


@functools.cache
def replaced_on(backend):
    """The parameters of the functions that are replaced where Keras runs on it, by their names."""
    if backend == "jax":
        pytest.importorskip("jax", reason="Keras on JAX needs jax")
    result = subprocess.run(
        [sys.executable, "-c", _CHECK],
        env=clean_environment(CUDA_VISIBLE_DEVICES="", KERAS_BACKEND=backend),
        cwd=_ROOT / "tools",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    assert "was not tested with" not in result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.parametrize("backend", _MOST)
def test_replaced_functions_are_few_and_recorded(backend):
    replaced = replaced_on(backend)
    unknown = [name for name, form in replaced.items() if form not in SIGNATURES.get(name, ())]
    assert unknown == [], "run tools/record_signatures.py"
    assert len(replaced) <= _MOST[backend]


def test_nothing_else_is_recorded():
    replaced = {name for backend in _MOST for name in replaced_on(backend)}
    assert set(SIGNATURES) - replaced == set(), "run tools/record_signatures.py"


def test_what_is_not_replaced_any_more_is_removed():
    recorded = {"A.f": ("(self)",), "B.g": ("(self)",), "C.h": ("(x)",)}
    installed = [{"A.f": "(self, x)"}, {"C.h": "(x)", "D.new": "()"}]
    assert record_signatures.merged(recorded, installed) == {
        "A.f": ("(self)", "(self, x)"),
        "C.h": ("(x)",),
        "D.new": ("()",),
    }


def test_supported_versions_are_those_of_the_package():
    package = (_ROOT / "pyproject.toml").read_text()
    assert f'"{signatures.SUPPORTED["keras"]}"' in package
    tensorflow = signatures.SUPPORTED["tensorflow"].replace("tensorflow", "tensorflow-cpu")
    assert f'"{tensorflow}"' in package
