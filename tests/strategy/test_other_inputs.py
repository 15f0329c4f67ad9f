"""Input that Python makes: workers read the same batches in one order, or say that they differ.

With Keras on TensorFlow and on JAX. What PyTorch and Grain make is tested where they are installed.
"""

import importlib.util
import pathlib

import numpy as np
import pytest

from tests import workers

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
_FOUND = [name for name, package in _NEEDS.items() if importlib.util.find_spec(package)]

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(600)


@pytest.fixture(scope="module", params=_BACKENDS)
def results(request):
    """Of one process, and of two workers."""
    if request.param == "jax":
        pytest.importorskip("jax", reason="Keras on JAX needs jax")
    on_jax = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    environment = on_jax if request.param == "jax" else {}
    names = [*_FOUND, *_ALWAYS]
    if request.param == "tensorflow":
        names.append("distributed_dataset")
    one, two = (workers.run(_PROGRAM, names, count, **environment) for count in (0, 2))
    return one, two


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


def test_what_keras_shuffles_comes_in_worker_0s_order(results):
    one, two = results
    for each in two["shuffled_by_keras"]:
        assert each["read"] == one["shuffled_by_keras"][0]["read"]
        _assert_equal(each["facts"], one["shuffled_by_keras"][0]["facts"])


def test_a_dataset_that_the_program_has_distributed(request, results):
    if request.node.callspec.params["results"] == "jax":
        pytest.skip("BytePSStrategy distributes datasets with Keras on TensorFlow")
    one, two = results
    (expected,) = one["distributed_dataset"]
    for each in two["distributed_dataset"]:
        _assert_equal(each["facts"], expected["facts"])
        assert each["begun"] == expected["begun"]
    # Those of validation do not count.
    assert expected["begun"] == [[0, 5] * epoch for epoch in (1, 2, 3)]


def test_rows_that_differ_are_an_error_on_all_workers(results):
    _, two = results
    for error in two["other_rows"]:
        assert "the workers' data differ" in error.replace("\\'", "'")


@pytest.mark.parametrize("name", _NEEDS)
def test_two_workers_are_as_one_process(results, name):
    if name not in _FOUND:
        pytest.skip(f"{_NEEDS[name]} is not installed")
    one, two = results
    for each in two[name]:
        _assert_equal(each, one[name][0])
