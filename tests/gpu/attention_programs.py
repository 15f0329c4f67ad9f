"""What the workers of test_flash_attention.py do, each on a GPU of its own."""

import functools
import hashlib

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.gpu.programs import start
from tf_byteps.ops.compiled import flash_attention

# batch, queries, keys, heads, width; whether it is causal, and the shape of its mask.
_CASES = (
    ((16, 512, 512, 12, 64), True, None),
    ((64, 128, 128, 16, 64), False, None),
    ((4, 64, 96, 4, 64), False, None),
    ((8, 128, 128, 4, 64), False, (8, 1, 128, 128)),
    ((8, 128, 128, 4, 64), True, (1, 4, 128, 128)),
    ((8, 128, 128, 4, 64), False, (8, 1, 1, 128)),
    ((3, 100, 100, 2, 40), True, None),
    ((2, 101, 77, 2, 8), False, None),
    ((2, 64, 64, 2, 128), True, None),
    ((0, 64, 64, 2, 64), True, None),
)


def _by_keras(query, key, value, mask, scale, is_causal):
    return keras.src.backend.tensorflow.nn._dot_product_attention_xla(
        query, key, value, None, mask, is_causal, scale
    )


def _results(attend, arrays, mask, is_causal, dtype):
    """The output and the three gradients, as float32."""

    @tf.function(jit_compile=True)
    def step(query, key, value, weights):
        with tf.GradientTape() as tape:
            tape.watch([query, key, value])
            output = attend(query, key, value, mask, query.shape[-1] ** -0.5, is_causal)
            loss = tf.reduce_sum(tf.cast(output, tf.float32) * tf.cast(weights, tf.float32))
        return [output, *tape.gradient(loss, [query, key, value])]

    with tf.device("/GPU:0"):
        return [tf.cast(each, tf.float32) for each in step(*[tf.cast(a, dtype) for a in arrays])]


def _distance(results, exact):
    """The largest relative error of a result."""
    norms = [
        (np.linalg.norm(a - b), np.linalg.norm(b)) for a, b in zip(results, exact, strict=True)
    ]
    return float(max((error / norm if norm else error) for error, norm in norms))


def compares():
    """For each case and dtype: the errors of Keras's attention and of cuDNN's."""
    start()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    random, found = np.random.default_rng(1), []
    for (batch, queries, keys, heads, width), is_causal, mask_shape in _CASES:
        lengths = (queries, keys, keys, queries)
        arrays = [random.normal(size=(batch, n, heads, width)).astype("f4") for n in lengths]
        mask = None
        if mask_shape is not None:
            mask = random.random(mask_shape) < 0.7
            mask[..., :3, :] = False  # queries that see nothing
        for dtype in ("bfloat16",) if mask_shape else ("bfloat16", "float16"):
            rounded = [tf.cast(tf.cast(a, dtype), tf.float32) for a in arrays]
            exact = _results(_by_keras, rounded, mask, is_causal, "float32")
            plain = _results(_by_keras, arrays, mask, is_causal, dtype)
            attend = flash_attention.flash_attention
            fused = _results(
                functools.partial(_with_mask_as_tensor, attend), arrays, mask, is_causal, dtype
            )
            found.append((dtype, queries, _distance(plain, exact), _distance(fused, exact)))
    bps.shutdown()
    return found


def _with_mask_as_tensor(attend, query, key, value, mask, scale, is_causal):
    mask = None if mask is None else tf.constant(mask)
    assert flash_attention.obstacle(query, key, value, mask, is_causal) is None
    return attend(query, key, value, mask, scale, is_causal)


def trains(flash):
    """A small transformer under the strategy: its losses, and a digest of its weights.

    The last batch of an epoch has one row, so that worker 1 has none of it.
    """
    start()
    calls, attend = [], flash_attention.flash_attention

    def counted(*given, **options):
        calls.append(given)
        return attend(*given, **options)

    flash_attention.flash_attention = counted
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    keras.utils.set_random_seed(1)
    tokens = np.random.default_rng(1).integers(0, 50, size=(65, 32))
    labels = (tokens + np.roll(tokens, 1, axis=1)) % 50
    with bps.BytePSStrategy(flash_attention=flash).scope():
        inputs = keras.Input([32], dtype="int32")
        x = keras.layers.Embedding(50, 64)(inputs)
        for _ in range(2):
            attended = keras.layers.MultiHeadAttention(4, 16)(x, x, use_causal_mask=True)
            x = keras.layers.LayerNormalization()(x + attended)
        model = keras.Model(inputs, keras.layers.Dense(50, dtype="float32")(x))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(3e-3), loss)
    history = model.fit(tokens, labels, batch_size=16, epochs=4, verbose=0)
    digest = hashlib.sha256(b"".join(each.tobytes() for each in model.get_weights())).hexdigest()
    predicted = model.predict(tokens, batch_size=16, verbose=0)
    bps.shutdown()
    return {
        "losses": history.history["loss"],
        "digest": digest,
        "predicted": float(np.linalg.norm(predicted)),
        "calls": len(calls),
    }
