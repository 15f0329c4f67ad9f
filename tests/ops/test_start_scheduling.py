"""The order of backpropagation that XLA is given: in graphs, and in programs of two workers."""

import os

import numpy as np
import pytest
import tensorflow as tf

from tests import workers
from tests.selection import some_extended
from tf_byteps.exchange import reduce_op
from tf_byteps.ops.compiled.start_scheduling import started_first
from tf_byteps.ops.library import kernels

PROGRAM = os.path.join(os.path.dirname(__file__), "start_scheduling_programs.py")


@pytest.fixture(scope="module")
def group():
    scenarios = [
        "start",
        "program",
        "program_apart",
        "program_with_norms",
        "numbers",
        "numbers_with_norms",
        "numbers_apart",
        "twice",
    ]
    return workers.run(PROGRAM, scenarios, 2)


@pytest.mark.parametrize("program", ["program", "program_apart"])
def test_xla_starts_an_exchange_before_it_goes_on_with_backpropagation(group, program):
    for order in group[program]:
        assert order == [
            "gradient of the weights of layer 2",
            "start of layer 2",
            "gradient of the input of layer 2",
            "gradient of the weights of layer 1",
            "start of layer 1",
            "gradient of the input of layer 1",
        ]


def assert_close(results, expected):
    """Fails unless two lists of arrays are equal but for rounding."""
    for one, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-8)


def test_norms_travel_while_the_next_layers_are_computed(group):
    for order in group["program_with_norms"]:
        assert order[:9] == [
            "gradient of the weights of layer 2",
            "start norms 2",
            "gradient of the input of layer 2",
            "gradient of the weights of layer 1",
            "start norms 1",
            "done norms 2",
            "start gradient 2",
            "gradient of the input of layer 1",
            "start norms 0",
        ]
        places = {each: place for place, each in enumerate(order)}
        starts = [place for each, place in places.items() if each.startswith("start")]
        for layer in range(3):
            assert places[f"done norms {layer}"] < places[f"start gradient {layer}"]
            assert places[f"done gradient {layer}"] > max(starts)


def test_gradients_in_units_of_norms_are_what_they_should_be(group):
    assert_near(group["numbers_with_norms"])


def assert_near(results_of_workers):
    """Fails unless gradients in units of norms are close to the exact ones."""
    for with_norms, exact in results_of_workers:
        for one, other in zip(with_norms, exact, strict=True):
            assert np.linalg.norm(one - other) <= 0.3 * np.linalg.norm(other)


def test_the_numbers_are_those_of_functions_that_are_not_compiled(group):
    for compiled, plain in group["numbers"]:
        assert_close(compiled, plain)


def test_the_numbers_are_the_same_where_another_program_waits_for_the_exchanges(group):
    for steps, (_, plain) in zip(group["numbers_apart"], group["numbers"], strict=True):
        for step in steps:
            assert_close(step, plain)


def test_gradients_of_one_variable_can_be_exchanged_twice_in_a_function(group):
    for compiled, plain in group["twice"]:
        assert_close(compiled, plain)


@pytest.mark.extended
def test_so_can_they_in_units_of_norms():
    found = workers.run(PROGRAM, ["start", "twice", "twice_with_norms"], 2)
    pairs = zip(found["twice_with_norms"], found["twice"], strict=True)
    assert_near([(with_norms, exact) for (with_norms, _), (_, exact) in pairs])


def _start(numbers, gradients, held):
    names = [f"gradient {number}" for number in numbers]
    return kernels().byte_ps_start_before(
        gradients, held, tensor_names=names, priorities=numbers, op=str(reduce_op.Sum)
    )


def _ordered(gradients):
    return started_first(gradients, [True] * len(gradients), _start)


def _traced(compute, *shapes):
    """The graph of a function of constants, after its gradients have been ordered; the variables'
    gradients before and after."""
    found = {}
    values = [tf.Variable(tf.random.stateless_normal(shape, [1, 2])) for shape in shapes]

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = compute(*values)
        found["before"] = [tf.convert_to_tensor(each) for each in tape.gradient(loss, values)]
        found["after"] = _ordered(found["before"])
        return found["after"]

    found["graph"] = step.get_concrete_function().graph
    return found


def _comes_after(operation, other):
    seen, left = set(), [operation]
    while left:
        one = left.pop()
        if one is other:
            return True
        if one not in seen:
            seen.add(one)
            left += [tensor.op for tensor in one.inputs]
    return False


def _held(found):
    return [one is not other for one, other in zip(found["before"], found["after"], strict=True)]


def _operations(graph, kind):
    return [operation for operation in graph.get_operations() if operation.type == kind]


def test_dense_layers():
    x = tf.random.stateless_normal([8, 512], [3, 4])
    found = _traced(lambda a, b: tf.reduce_sum(tf.nn.relu(x @ a) @ b), [512, 512], [512, 512])
    assert _held(found) == [False, True]  # nothing comes before the first layer
    of_weights, of_input = (each.op for each in (found["before"][1], found["before"][0]))
    assert of_input.type == of_weights.type == "MatMul"
    assert _comes_after(of_input, of_weights)


@pytest.mark.parametrize("dtype", some_extended(["float32", "bfloat16"], ["bfloat16"]))
def test_convolutions(dtype):
    x = tf.cast(tf.random.stateless_normal([2, 8, 8, 256], [3, 4]), dtype)

    def loss(*kernels):
        y = x
        for kernel in kernels:
            y = tf.nn.relu(tf.nn.conv2d(y, tf.cast(kernel, dtype), 1, "SAME"))
        return tf.reduce_sum(tf.cast(y, tf.float32))

    found = _traced(loss, [3, 3, 256, 256], [3, 3, 256, 256])
    assert _held(found)[1]
    (of_input,) = [
        each
        for each in _operations(found["graph"], "Conv2DBackpropInput")
        if _comes_after(found["before"][0].op, each)
    ]
    assert _comes_after(of_input, found["before"][1].op)


def test_batches_of_matrices_whose_gradients_are_added_up():
    x = tf.random.stateless_normal([4, 8, 512], [3, 4])
    found = _traced(
        lambda a, b: tf.reduce_sum(tf.matmul(tf.tanh(tf.matmul(x, a)), b)), [512, 512], [512, 512]
    )
    assert _held(found)[1]
    of_first, of_second = (each.op for each in found["before"])
    assert _operations(found["graph"], "Sum")
    assert _comes_after(of_first, of_second)


def test_two_layers_with_one_output_gradient():
    x = tf.random.stateless_normal([8, 512], [3, 4])

    def loss(a, b, c):
        y = tf.tanh(x @ a)
        return tf.reduce_sum(tf.tanh(y @ b + y @ c))

    found = _traced(loss, [512, 512], [512, 512], [512, 512])
    assert _held(found) == [False, True, True]
    of_a, *of_later = (each.op for each in found["before"])
    assert all(_comes_after(of_a, each) for each in of_later)


def test_biases_and_shapes():
    """What uses the gradient of the layer's output in another shape comes later, too; only what
    computes the gradient of the weights reads it from where it was."""
    x = tf.random.stateless_normal([2, 4, 512], [3, 4])

    def loss(a, b, bias):
        y = tf.tanh(tf.tensordot(x, a, 1))
        return tf.reduce_sum(tf.tanh(tf.nn.bias_add(tf.tensordot(y, b, 1), bias)))

    found = _traced(loss, [512, 512], [512, 512], [512])
    assert _held(found) == [False, True, False]
    of_first, of_second, of_bias = (each.op for each in found["before"])
    assert _comes_after(of_first, of_second)
    assert _comes_after(of_bias, of_second)


def test_biases_start_with_the_weights_of_the_layer_before():
    x = tf.random.stateless_normal([8, 512], [3, 4])

    def loss(a, of_a, b, of_b, c, of_c):
        y = tf.tanh(tf.tanh(x @ a + of_a) @ b + of_b)
        return tf.reduce_sum(tf.tanh(y @ c + of_c))

    found = _traced(loss, *[[512, 512], [512]] * 3)
    names = [
        each.get_attr("tensor_names") for each in _operations(found["graph"], "BytePSStartBefore")
    ]
    assert names == [
        [b"gradient 4"],
        [b"gradient 2", b"gradient 5"],
        [b"gradient 0", b"gradient 3"],
    ]
    assert _held(found) == [True, False, True, True, True, True]
    assert _comes_after(found["before"][0].op, found["before"][5].op)


def test_lists_in_another_order_than_the_layers():
    """Biases would come before what they are computed from: each starts alone."""
    x = tf.random.stateless_normal([8, 512], [3, 4])

    def loss(of_a, of_b, of_c, c, b, a):
        y = tf.tanh(tf.tanh(x @ a + of_a) @ b + of_b)
        return tf.reduce_sum(tf.tanh(y @ c + of_c))

    found = _traced(loss, *[[512]] * 3, *[[512, 512]] * 3)
    assert _held(found) == [False, False, False, True, True, True]
    assert _comes_after(found["before"][4].op, found["before"][3].op)


def test_a_weight_of_each_worker():
    factor = tf.Variable(0.5)
    x = tf.random.stateless_normal([8, 512], [3, 4])
    found = {}

    @tf.function
    def step(a, b):
        with tf.GradientTape() as tape:
            tape.watch([a, b])
            loss = tf.reduce_sum(tf.nn.relu(x @ a) @ b)
        gradients = [tf.math.multiply_no_nan(g, factor) for g in tape.gradient(loss, [a, b])]
        found.update(before=gradients, after=_ordered(gradients))
        return found["after"]

    a = tf.random.stateless_normal([512, 512], [1, 2])
    step(a, a)
    assert _held(found) == [False, True]


def test_small_gradients_and_biases_and_tables_are_left_alone():
    def loss(table, kernel, bias):
        rows = tf.gather(tf.convert_to_tensor(table), [1, 2, 3])
        return tf.reduce_sum(tf.tanh(rows @ kernel + bias) ** 2)

    found = _traced(loss, [4096, 128], [128, 64], [64])
    assert _held(found) == [False, False, False]
    assert not _operations(found["graph"], "BytePSStartBefore")


def test_gradients_that_need_each_other_stay_as_they_were():
    """Each is scaled by the norm of all: none can be known before backpropagation has ended."""
    x = tf.random.stateless_normal([8, 512], [3, 4])
    found = {}

    @tf.function
    def step(a, b):
        with tf.GradientTape() as tape:
            tape.watch([a, b])
            loss = tf.reduce_sum(tf.nn.relu(x @ a) @ b)
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, [a, b]), 1.0)
        found.update(before=gradients, after=_ordered(gradients))
        return found["after"]

    a = tf.random.stateless_normal([512, 512], [1, 2])
    results = step(a, a)
    assert _held(found) == [False, False]
    np.testing.assert_allclose(tf.linalg.global_norm(results), 1.0, rtol=1e-5)


def test_gradients_of_gradients():
    x = tf.random.stateless_normal([8, 512], [3, 4])

    def step(a, b, order):
        with tf.GradientTape() as outer:
            outer.watch([a, b])
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.reduce_sum(tf.tanh(x @ a) @ b)
            loss = tf.reduce_sum(inner.gradient(y, x) ** 2)
        return order(outer.gradient(loss, [a, b]))

    a, b = (tf.random.stateless_normal([512, 512], [1, seed]) / 20 for seed in (2, 3))
    ordered = tf.function(step)(a, b, _ordered)
    for one, other in zip(ordered, step(a, b, list), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
