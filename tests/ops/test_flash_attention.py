"""Which attention is cuDNN's, and what becomes of it in a graph. tests/gpu computes with it."""

import numpy as np
import pytest
import tensorflow as tf

from tf_byteps.ops.compiled import flash_attention

BFLOAT16 = tf.bfloat16


@pytest.fixture
def on_a_gpu(monkeypatch):
    """What is traced as if it were for a GPU: nothing of it runs."""
    monkeypatch.setattr(flash_attention, "_obstacle_on_device", lambda: None)


def _spec(shape, dtype=BFLOAT16):
    return tf.TensorSpec(shape, dtype)


_HEADS = _spec([None, 128, 4, 64])


def _obstacle(*specs, mask=None, is_causal=False):
    found = []

    @tf.function(input_signature=[*specs, *([] if mask is None else [mask])])
    def trace(query, key, value, *masks):
        found.append(
            flash_attention.obstacle(query, key, value, masks[0] if masks else None, is_causal)
        )

    trace.get_concrete_function()
    return found[0]


def test_without_a_gpu_keras_computes():
    assert _obstacle(*[_HEADS] * 3) == "XLA does not compile it for a GPU"


@pytest.mark.parametrize(
    "query, key, causal",
    [
        (_HEADS, _HEADS, True),
        (_HEADS, _spec([None, 96, 4, 64]), False),
        (_spec([3, 7, 1, 8], tf.float16), _spec([3, 5, 1, 8], tf.float16), False),
        (_spec([3, 7, 1, 128]), _spec([3, 7, 1, 128]), True),
    ],
)
def test_cudnn_computes(on_a_gpu, query, key, causal):
    assert _obstacle(query, key, key, is_causal=causal) is None


@pytest.mark.parametrize("shape", [[None, 1, 128, 128], [1, 4, 128, 128], [None, 1, 1, 128]])
def test_cudnn_computes_with_a_mask(on_a_gpu, shape):
    assert _obstacle(*[_HEADS] * 3, mask=_spec(shape, tf.bool)) is None


@pytest.mark.parametrize(
    "specs, options, reason",
    [
        ([_spec([None, 8, 4, 64], tf.float32)] * 3, {}, "it computes in float32, not in"),
        ([_spec([None, 8, 4, 12])] * 3, {}, "heads are 12 wide, not a multiple of 8 up to 128"),
        ([_spec([None, 8, 4, 256])] * 3, {}, "heads are 256 wide"),
        ([_HEADS, _HEADS, _spec([None, 128, 4, 32])], {}, "differ in width"),
        ([_HEADS, *[_spec([None, 128, 2, 64])] * 2], {}, "differ in their number of heads"),
        ([_spec([None, None, 4, 64])] * 3, {}, "lengths of its inputs are not known"),
        ([_HEADS, *[_spec([None, 96, 4, 64])] * 2], {"is_causal": True}, "it is causal with more"),
        ([_HEADS] * 3, {"mask": _spec([None, 1, 128, 128], tf.float32)}, "its mask has dtype"),
        ([_HEADS] * 3, {"mask": _spec([None, 128], tf.bool)}, "its mask has dtype bool and shape"),
        (
            [_spec([None, 8, 4, 64], tf.float16)] * 3,
            {"mask": _spec([1, 1, 8, 8], tf.bool)},
            "float16 has no number that masks",
        ),
        (
            [_spec([None, 7, 4, 64])] * 3,
            {"mask": _spec([1, 1, 7, 7], tf.bool)},
            "it has a mask, and an odd number",
        ),
    ],
)
def test_keras_computes(on_a_gpu, specs, options, reason):
    assert reason in _obstacle(*specs, **options)


def _operations(function):
    return [each.type for each in function.get_concrete_function().graph.get_operations()]


def test_a_graph_has_one_operation_for_each_direction(on_a_gpu):
    inputs = [_HEADS] * 3

    @tf.function(input_signature=inputs)
    def step(query, key, value):
        with tf.GradientTape() as tape:
            tape.watch([query, key, value])
            output = flash_attention.flash_attention(query, key, value, None, 0.125, True)
        assert output.shape.as_list() == [None, 128, 4, 64]
        gradients = tape.gradient(output, [query, key, value])
        assert [each.shape.as_list() for each in gradients] == [each.shape for each in inputs]
        return gradients

    types = _operations(step)
    assert types.count("BytePSAttention") == types.count("BytePSAttentionGradient") == 1
    assert "Softmax" not in types


def test_a_second_derivative_is_an_error_that_says_what_to_do(on_a_gpu):
    @tf.function(input_signature=[_HEADS])
    def step(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                output = flash_attention.flash_attention(x, x, x, None, 0.125, True)
            gradient = inner.gradient(output, x)
        return outer.gradient(gradient, x)

    with pytest.raises(NotImplementedError, match="leave flash_attention=True out of BytePSStr"):
        step.get_concrete_function()


def test_a_query_that_sees_no_key_gets_the_mean_of_all_values():
    """As in Keras, whose scores get no gradient there; the kernel's output is not used."""
    value = tf.constant(np.random.default_rng(1).normal(size=(2, 3, 4, 8)), tf.float32)
    output = tf.fill([2, 5, 4, 8], 7.0)
    mask = np.ones((2, 1, 5, 3), bool)
    mask[1, :, 2] = False
    with tf.GradientTape() as tape:
        tape.watch([value, output])
        result = flash_attention._with_mean_where_nothing_is_seen(output, value, tf.constant(mask))
    expected = output.numpy()
    expected[1, 2] = value.numpy()[1].mean(axis=0)
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    of_output, of_value = tape.gradient(result, [output, value])
    np.testing.assert_array_equal(of_output, (expected == 7).astype("f4"))
    wanted = np.zeros((2, 3, 4, 8))
    wanted[1] = 1 / 3
    np.testing.assert_allclose(of_value, wanted, rtol=1e-6)
