"""The order of backpropagation that XLA is given: in jaxprs, and in programs of two workers."""

import pathlib

import numpy as np
import pytest

from tests import workers
from tests.selection import asked_values, some_extended

pytest.importorskip("jax", reason="programs of JAX")

_ENVIRONMENT = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
_JAXPRS = pathlib.Path(__file__).with_name("jaxpr_programs.py")
_TWO_LAYERS = ["dense_layers", "casts", "convolutions", "batches_of_matrices", "shapes"]
_TWO_LAYERS += ["layer_used_twice", "regularizer", "scaled"]
_OTHERS = ["one_output_gradient", "biases", "another_order", "gradients_of_gradients"]
_AT_THE_END = ["clipped", "derived_names", "one_name_twice", "small_and_tables"]
_PROGRAM = pathlib.Path(__file__).with_name("start_programs.py")
_NUMBERS = ["dense", "own_step", "compressed", "convolutions"]
# On some CPUs XLA adds up the gradient of a convolution's bias in another order, depending on what
# it is fused with. Each of the two programs gives the same numbers each time.
_ROUNDED = ["convolutions"]
_WITHOUT_ROWS = 'order={"rows": 0}'

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(600)


@pytest.fixture(scope="module")
def group(request):
    numbers = asked_values(
        request, "name", test_the_numbers_are_those_of_exchanges_that_start_at_the_end
    )
    return workers.run(_PROGRAM, ["order", _WITHOUT_ROWS, *numbers], 2, **_ENVIRONMENT)


@pytest.mark.parametrize("name", some_extended(_NUMBERS, _NUMBERS[1:]))
def test_the_numbers_are_those_of_exchanges_that_start_at_the_end(group, name):
    for (history, weights), (history_at_end, weights_at_end) in group[name]:
        assert history == history_at_end
        for one, other in zip(weights, weights_at_end, strict=True):
            if name in _ROUNDED:
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-8)
            else:
                np.testing.assert_array_equal(one, other)


def _layers_of(starts):
    return [[name.split("/", 1)[1] for name in names] for names in starts]


def test_xla_starts_an_exchange_before_it_goes_on_with_backpropagation(group):
    for order in group["order"]:
        kinds = [kind for kind, _ in order]
        products = [place for place, (_, what) in enumerate(order) if what == "8,512"]
        starts = [place for place, kind in enumerate(kinds) if kind == "start"]
        assert _layers_of(order[place][1] for place in starts) == [
            ["layer_2/kernel"],
            ["layer_1/kernel", "layer_2/bias", "layer_3/kernel", "layer_3/bias"],
            ["layer_0/kernel", "layer_1/bias"],
            ["layer_0/bias"],
        ]
        # The gradients of the inputs of layers 3, 2 and 1: the starts of 2 and 1 are in between.
        first, second, third = products
        assert first < starts[0] < second < starts[1] < third < starts[2]
        assert kinds.index("done") > starts[-1]


def test_a_worker_without_rows_starts_together_what_others_do(group):
    for order in group[_WITHOUT_ROWS]:
        starts = _layers_of(names for kind, names in order if kind == "start")
        assert sorted(starts) == [
            ["layer_0/bias"],
            ["layer_0/kernel", "layer_1/bias"],
            ["layer_1/kernel", "layer_2/bias", "layer_3/kernel", "layer_3/bias"],
            ["layer_2/kernel"],
        ]


@pytest.fixture(scope="module")
def jaxprs():
    return workers.run(_JAXPRS, [*_TWO_LAYERS, *_OTHERS, *_AT_THE_END], 0, **_ENVIRONMENT)


@pytest.mark.parametrize("name", _TWO_LAYERS)
def test_the_second_of_two_layers_starts_first(jaxprs, name):
    (found,) = jaxprs[name]
    # Nothing comes before the first layer, whose input needs no gradient.
    assert found == {"starts": [[1]], "before": [[1], []]}


def test_two_layers_with_one_output_gradient(jaxprs):
    (found,) = jaxprs["one_output_gradient"]
    assert sorted(found["starts"]) == [[1], [2]]
    assert found["before"][0] == [1, 2]


def test_biases_start_with_the_weights_of_the_layer_before(jaxprs):
    (found,) = jaxprs["biases"]
    assert found["starts"] == [[4], [2, 5], [0, 3]]
    assert found["before"][5] == [4] and found["before"][0] == [2, 4, 5]


def test_lists_in_another_order_than_the_layers(jaxprs):
    """Each of the large ones starts alone."""
    (found,) = jaxprs["another_order"]
    assert found["starts"] == [[3], [4], [5]]
    assert found["before"][5] == [3, 4]


def test_gradients_of_gradients(jaxprs):
    (found,) = jaxprs["gradients_of_gradients"]
    assert found["starts"]


@pytest.mark.parametrize("name", _AT_THE_END)
def test_programs_that_stay_as_they_were(jaxprs, name):
    assert jaxprs[name] == [None]
