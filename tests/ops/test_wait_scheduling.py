"""When compiled steps wait for what the step before has started: in graphs, and in programs of two
workers."""

import os

import pytest
import tensorflow as tf

from tests import workers
from tests.ops.test_start_scheduling import assert_close
from tf_byteps.ops.compiled.wait_scheduling import at_once, place_late
from tf_byteps.ops.library import kernels, token

PROGRAM = os.path.join(os.path.dirname(__file__), "wait_scheduling_programs.py")
WIDTH = 512


@pytest.fixture(scope="module")
def group():
    return workers.run(PROGRAM, ["order", "numbers", "forgotten"], 2)


def test_xla_waits_for_a_layers_sums_when_the_layer_before_has_been_computed(group):
    for order in group["order"]:
        assert order == [
            "wait for layer 0",
            "layer 0",
            "wait for layer 1",
            "layer 1",
            "wait for layer 2",
            "layer 2",
        ]


def test_the_numbers_are_those_of_functions_that_are_not_compiled(group):
    for compiled, plain in group["numbers"]:
        assert_close(compiled, plain)


def test_names_of_forgotten_exchanges_are_free_at_once(group):
    for sums in group["forgotten"]:
        assert sums == [[201.0] * 1000] * 2


def _wait(number, shape):
    return kernels().byte_ps_wait(
        token(f"late/{number}"),
        [at_once()],
        T=tf.float32,
        tensor_name=f"late/{number}",
        shape=shape,
    )


def _assign_all(values, sums):
    for value, its_sum in zip(values, sums, strict=True):
        value.assign_sub(its_sum)


def _traced(forward, *shapes, update=_assign_all):
    """A function that updates variables with sums and computes something with them.

    Returns:
        Of each wait the operation in whose result it sees that it is late, or `None`; and how many
        `place_late` says are late.
    """
    values = [tf.Variable(tf.random.stateless_normal(shape, [1, 2])) for shape in shapes]
    found = {}

    @tf.function
    def step():
        update(values, [_wait(number, shape) for number, shape in enumerate(shapes)])
        graph = tf.compat.v1.get_default_graph()
        begin = len(graph.get_operations())
        result = forward(*values)
        handles = {f"late/{i}": graph.capture(value.handle) for i, value in enumerate(values)}
        found["count"] = place_late(handles, begin)
        found["waits"] = [each for each in graph.get_operations() if each.type == "BytePSWait"]
        return result

    step.get_concrete_function()
    return [_gate(wait) for wait in found["waits"]], found["count"]


def _gate(wait):
    operation = wait.inputs[1].op
    while operation.type == "Cast":
        operation = operation.inputs[0].op
    return None if operation.type == "PlaceholderWithDefault" else operation.type


def _x(*shape):
    return tf.random.stateless_normal(shape, [3, 4])


def test_dense_layers_and_their_biases():
    x = _x(8, WIDTH)

    def forward(a, of_a, b, of_b, c):
        return tf.tanh(tf.nn.relu(x @ a + of_a) @ b + of_b) @ c

    gates, late = _traced(forward, *[[WIDTH, WIDTH], [WIDTH]] * 2, [WIDTH, WIDTH])
    assert gates == [None, None, "Relu", "Relu", "Tanh"]
    assert late == 3


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_convolutions(dtype):
    x = tf.cast(_x(2, 8, 8, 256), dtype)

    def forward(*weights):
        y = x
        for weight in weights:
            y = tf.nn.relu(tf.nn.conv2d(y, tf.cast(weight, dtype), 1, "SAME"))
        return y

    gates, _ = _traced(forward, *[[3, 3, 256, 256]] * 3)
    assert gates == [None, "Relu", "Relu"]


def test_factors_in_another_shape():
    x = _x(2, 4, WIDTH)

    def forward(a, b):
        return tf.tensordot(tf.tanh(tf.tensordot(x, a, 1)), b, 1)

    gates, _ = _traced(forward, *[[WIDTH, WIDTH]] * 2)
    assert gates == [None, "Tanh"]


def test_weights_of_the_first_and_the_last_layer_are_needed_at_once():
    x = _x(8, WIDTH)

    def forward(a, b):
        return tf.tanh(tf.tanh(x @ a) @ b) @ tf.transpose(a)

    gates, _ = _traced(forward, *[[WIDTH, WIDTH]] * 2)
    assert gates == [None, "Tanh"]


def test_small_layers_and_unused_variables_wait_at_once():
    x = _x(8, 16)
    gates, late = _traced(lambda a, b, c: tf.tanh(x @ a) @ b, *[[16, 16]] * 3)
    assert gates == [None] * 3
    assert late == 0


def test_variables_of_a_loop():
    x = _x(8, WIDTH)

    def forward(a, b, c):
        y = tf.tanh(tf.tanh(x @ a) @ b)
        for _ in tf.range(3):
            y = tf.tanh(y @ c)
        return y

    gates, _ = _traced(forward, *[[WIDTH, WIDTH]] * 3)
    assert gates == [None, "Tanh", "Tanh"]


def test_updates_that_need_all_sums_stay_where_they_are():
    """Each is scaled by the norm of all: a layer could not be computed before the last sum."""
    x = _x(8, WIDTH)

    def update(values, sums):
        _assign_all(values, tf.clip_by_global_norm(sums, 1.0)[0])

    gates, late = _traced(lambda a, b: tf.tanh(x @ a) @ b, *[[WIDTH, WIDTH]] * 2, update=update)
    assert gates == [None, None]
    assert late == 0


def test_updates_that_need_each_other_by_a_variable_stay_where_they_are():
    x = _x(8, WIDTH)
    shared = tf.Variable(0.0)

    def update(values, sums):
        first, second = values
        shared.assign(tf.norm(sums[1]))
        second.assign_sub(sums[1])
        first.assign_sub(sums[0] * shared)

    gates, _ = _traced(lambda a, b: tf.tanh(x @ a) @ b, *[[WIDTH, WIDTH]] * 2, update=update)
    assert gates == [None, None]
