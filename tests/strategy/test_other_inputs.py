"""Input that Python makes: workers read the same batches in one order, or say that they differ.

With Keras on TensorFlow and on JAX. What PyTorch and Grain make is tested where they are installed.
"""

import functools
import importlib.util
import pathlib

import numpy as np
import pytest

from tests import workers
from tests.selection import asked

_PROGRAM = pathlib.Path(__file__).with_name("other_inputs_programs.py")
_BACKENDS = ("tensorflow", "jax")
_ALWAYS = ["shuffled_by_keras", "other_rows"]
_NEEDS = {
    "torch_loader": "torch",
    "grain_dataset": "grain",
    "grain_iterator": "grain",
    "grain_loader": "grain",
    "sparse_matrix": "scipy",
}
# Of these `make test` has one on JAX, of which nobody says how long it is.
_EVERYDAY_ON_JAX = ("grain_iterator",)
_FOUND = [name for name, package in _NEEDS.items() if importlib.util.find_spec(package)]

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(600)


_on_all_backends = pytest.mark.parametrize("backend", _BACKENDS)


@pytest.fixture(scope="module")
def results(request):
    """A function of a backend: what one process and two workers returned."""

    @functools.cache
    def of(backend):
        if backend == "jax":
            pytest.importorskip("jax", reason="Keras on JAX needs jax")
        environment = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"} if backend == "jax" else {}
        cases = asked(request, test_two_workers_are_as_one_process)
        wanted = {case["name"] for case in cases if case["backend"] == backend}
        names = [*(name for name in _FOUND if name in wanted), *_ALWAYS]
        if backend == "tensorflow":
            names.append("distributed_dataset")
        return [workers.run(_PROGRAM, names, count, **environment) for count in (0, 2)]

    return of


def _assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if isinstance(value, dict):
            _assert_equal(found[key], value)
        elif key == "weights":
            for each, other in zip(found[key], value, strict=True):
                np.testing.assert_allclose(each, other, rtol=1e-9, atol=1e-9)
        else:
            np.testing.assert_allclose(found[key], value, rtol=1e-9, atol=1e-9, err_msg=key)


@_on_all_backends
def test_what_keras_shuffles_comes_in_worker_0s_order(results, backend):
    one, two = results(backend)
    for each in two["shuffled_by_keras"]:
        assert each["read"] == one["shuffled_by_keras"][0]["read"]
        _assert_equal(each["facts"], one["shuffled_by_keras"][0]["facts"])


def test_a_dataset_that_the_program_has_distributed(results):
    one, two = results("tensorflow")
    (expected,) = one["distributed_dataset"]
    for each in two["distributed_dataset"]:
        _assert_equal(each["facts"], expected["facts"])
        assert each["begun"] == expected["begun"]
    # Those of validation do not count.
    assert expected["begun"] == [[0, 5] * epoch for epoch in (1, 2, 3)]


@_on_all_backends
def test_rows_that_differ_are_an_error_on_all_workers(results, backend):
    _, two = results(backend)
    for error in two["other_rows"]:
        assert "the workers' data differ" in error.replace("\\'", "'")


def _parameters():
    for backend in _BACKENDS:
        for name in _NEEDS:
            is_everyday = backend == "tensorflow" or name in _EVERYDAY_ON_JAX
            marks = () if is_everyday else pytest.mark.extended
            yield pytest.param(backend, name, id=f"{backend}-{name}", marks=marks)


@pytest.mark.parametrize(("backend", "name"), list(_parameters()))
def test_two_workers_are_as_one_process(results, backend, name):
    if name not in _FOUND:
        pytest.skip(f"{_NEEDS[name]} is not installed")
    one, two = results(backend)
    for each in two[name]:
        _assert_equal(each, one[name][0])
