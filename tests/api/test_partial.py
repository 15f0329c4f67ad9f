"""Layers that stay local, with two real workers: `PartialDistributedOptimizer` and the tape."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_byteps as bps
from tests.cluster import run_workers
from tests.errors import error_of

_X = np.array([[1.0, 2.0], [3.0, -1.0]], "float32")
_Y = np.array([[1.0], [0.5]], "float32")


def _model(own_width=2):
    """A layer of the worker's own, whose values are its own, and a shared one."""
    own = keras.layers.Dense(own_width, "tanh", kernel_initializer="ones", name="own")
    head = keras.layers.Dense(1, name="shared")
    model = keras.Sequential([keras.Input([2]), own, head])
    rank = bps.rank()
    own.set_weights([weight * 0.1 * (rank + 1) + 0.1 for weight in own.get_weights()])
    head.set_weights([np.full([own_width, 1], 0.25, "float32"), np.zeros([1], "float32")])
    return model, own


def _loss(model):
    return tf.reduce_mean(tf.square(model(_X * (bps.rank() + 1)) - _Y))


def _as_lists(gradients):
    return [np.asarray(gradient).tolist() for gradient in gradients]


def _by_tape(**options):
    """This worker's gradients, those of the tape, and those that it gives apart."""
    model, own = _model()
    with tf.GradientTape(persistent=True) as plain:
        loss = _loss(model)
    variables = model.trainable_variables
    tape = bps.PartialDistributedGradientTape(plain, local_layers=own, **options)
    local, shared = tape.get_local_and_global_gradients(loss, variables)
    names = [[source.path for source, _ in pairs] for pairs in (local, shared)]
    apart = [gradient for _, gradient in [*local, *shared]]
    return [
        _as_lists(plain.gradient(loss, variables)),
        _as_lists(tape.gradient(loss, variables)),
        _as_lists(apart),
        names,
    ]


def _by_optimizer(build_first, **options):
    """What each weight has moved by, with a rate of 1; the layer may be built only later."""
    if build_first:
        model, own = _model()
        given = [own]
    else:
        own = keras.layers.Dense(2, "tanh", kernel_initializer="ones", name="own")
        given = (each for each in (own,))
    optimizer = bps.keras.PartialDistributedOptimizer(
        keras.optimizers.SGD(1.0), local_layers=given, **options
    )
    if not build_first:
        head = keras.layers.Dense(1, name="shared", kernel_initializer="ones")
        model = keras.Sequential([own, head])
        model.build((None, 2))
        own.set_weights([weight * 0.1 * (bps.rank() + 1) for weight in own.get_weights()])
    with tf.GradientTape() as tape:
        loss = _loss(model)
    gradients = tape.gradient(loss, model.trainable_variables)
    given_gradients = _as_lists(gradients)
    before = model.get_weights()
    optimizer.apply(gradients, model.trainable_variables)
    assert _as_lists(gradients) == given_gradients  # they are the program's
    moved = [old - new for old, new in zip(before, model.get_weights(), strict=True)]
    return given_gradients, _as_lists(moved)


def _embeddings_of_other_sizes():
    """A part of the model that has another shape on each worker, in `fit`, with rows of it."""
    rows = 5 + 4 * bps.rank()
    own = keras.layers.Embedding(rows, 3, name="own")
    model = keras.Sequential([own, keras.layers.Flatten(), keras.layers.Dense(1, name="shared")])
    model.build((None, 1))
    optimizer = bps.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=[own])
    model.compile(optimizer, "mse")
    bps.broadcast_variables(model.layers[-1].variables, root_rank=0)
    ids = np.arange(8).reshape(8, 1) % rows
    targets = np.cos(ids).astype("float32")
    kept = ids.copy(), targets.copy()
    history = model.fit(ids, targets, batch_size=4, epochs=5, shuffle=False, verbose=0)
    assert (ids == kept[0]).all() and (targets == kept[1]).all()
    shared = _as_lists(model.layers[-1].get_weights())
    return shared, list(own.embeddings.shape), history.history["loss"]


def _within_the_strategy():
    own = keras.layers.Dense(1)
    with bps.BytePSStrategy().scope():
        model = keras.Sequential([keras.Input([2]), own])
        optimizer = bps.PartialDistributedOptimizer(keras.optimizers.SGD(), local_layers=own)
        model.compile(optimizer, "mse")
    return error_of(model.fit, _X, _Y, verbose=0)


def scenarios():
    bps.init()
    return {
        "tape": _by_tape(),
        "unscaled": _by_tape(scale_local_gradients=False, groups=2),
        "sum": _by_tape(op="sum"),
        "built": _by_optimizer(True),
        "built later": _by_optimizer(False, scale_local_gradients=False),
        "no layers": error_of(
            bps.PartialDistributedOptimizer, keras.optimizers.SGD(), local_layers=["own"]
        ),
        "a number": error_of(bps.PartialDistributedGradientTape, tf.GradientTape(), local_layers=3),
        "none": bps.PartialDistributedOptimizer(keras.optimizers.SGD()).byteps_reduction.has_local,
        "other sizes": _embeddings_of_other_sizes(),
        "strategy": _within_the_strategy(),
    }


@pytest.fixture(scope="module")
def both():
    return run_workers(scenarios, workers=2, servers=1, timeout=200)


@pytest.mark.parametrize(
    "name, local_factor, shared_factor", [("tape", 0.5, 0.5), ("unscaled", 1, 0.5), ("sum", 1, 1)]
)
def test_a_tape_leaves_the_gradients_of_local_layers(both, name, local_factor, shared_factor):
    plain = [each[name][0] for each in both]
    total = [np.add(*pair) for pair in zip(*plain, strict=True)]
    assert not np.allclose(plain[0][0], plain[1][0])  # the workers' gradients differ
    for rank, each in enumerate(both):
        own, reduced, apart, names = each[name]
        for number in (0, 1):
            np.testing.assert_allclose(reduced[number], np.multiply(own[number], local_factor))
        for number in (2, 3):
            np.testing.assert_allclose(reduced[number], total[number] * shared_factor, rtol=1e-6)
        assert own == plain[rank] and apart == reduced
        assert [[path.split("/")[-2] for path in paths] for paths in names] == [
            ["own"] * 2,
            ["shared"] * 2,
        ]


@pytest.mark.parametrize("name, local_factor", [("built", 0.5), ("built later", 1)])
def test_an_optimizer_applies_a_workers_own_gradients_to_local_layers(both, name, local_factor):
    plain = [each[name][0] for each in both]
    for rank, each in enumerate(both):
        moved = each[name][1]
        for number in (0, 1):
            expected = np.multiply(plain[rank][number], local_factor)
            np.testing.assert_allclose(moved[number], expected, rtol=1e-4, atol=1e-6)
        for number in (2, 3):
            mean = np.mean([plain[0][number], plain[1][number]], 0)
            np.testing.assert_allclose(moved[number], mean, rtol=1e-4, atol=1e-6)


def test_local_layers_may_have_other_shapes_on_each_worker(both):
    (first, its_shape, its_losses), (second, other_shape, other_losses) = (
        each["other sizes"] for each in both
    )
    assert first == second and its_shape == [5, 3] and other_shape == [9, 3]
    assert its_losses[-1] < its_losses[0] and other_losses[-1] < other_losses[0]


def test_what_cannot_stay_local_is_refused(both):
    for each in both:
        assert each["no layers"][0] == each["a number"][0] == "TypeError"
        assert "must be a keras.layers.Layer, or a list of them, got str" in each["no layers"][1]
        assert "register_local_source of a tape" in each["a number"][1]
        assert each["strategy"][0] == "ValueError"
        assert "and what stays local, or train without the strategy" in each["strategy"][1]
        assert each["none"] is False
