"""A TensorFlow worker that trains a small character model on the sources of Python's own library,
which every machine has."""

import pathlib
import sysconfig
import time

import keras
import numpy as np
import tensorflow as tf

import tf_byteps
from benchmarks.programs import tensorflow_worker
from benchmarks.programs.tensorflow_worker import leave as leave
from tf_byteps import _engine

_CONTEXT = 8  # characters from which the next one is told
_CHARACTERS = 96  # those that are printed, and the end of a line
_WIDTHS = (_CHARACTERS, 16, 256, _CHARACTERS)  # of embedding, hidden layer, output
_BATCH = 128  # of a worker
_VALIDATED = 50_000
_text = {}  # "train" and "validation"


def join():
    tensorflow_worker.join()
    folder = pathlib.Path(sysconfig.get_path("stdlib"))
    text = b"\n".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    codes = np.frombuffer(text, np.uint8).astype(np.int32) - ord(" ") + 1
    codes[(codes < 1) | (codes >= _CHARACTERS)] = 0
    end = len(codes) * 9 // 10
    _text.update(train=tf.constant(codes[:end]), validation=tf.constant(codes[end:]))
    return tf_byteps.rank()


def train(optimizer, compression, seed, steps):
    """Trains a model from the beginning.

    Args:
        optimizer: "sgd", with momentum, or "adam".
        compression: of the gradients.
        seed: of the weights and the batches.
        steps: how many; the learning rate falls to a tenth until the last one.

    Returns:
        The loss of characters that it has not been trained with, in nats.
    """
    weights = _weights(np.random.default_rng(seed))
    applied = _optimizer(optimizer, steps)
    applied.build(weights)
    random = tf.random.Generator.from_seed(1000 * seed + tf_byteps.rank())

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            loss = _loss(weights, *_windows(_text["train"], random, _BATCH))
        gradients = tape.gradient(loss, [weight.value for weight in weights])
        # Names of this training only: no residual comes from another one.
        gradients = tf_byteps.push_pull(
            gradients,
            op="average",
            name=f"{optimizer} {compression} {seed}",
            compression=compression,
        )
        applied.apply(gradients, weights)

    for _ in range(steps):
        step()
    return _validation_loss(weights)


def _validation_loss(weights):
    drawn = tf.random.Generator.from_seed(1)  # the same for all
    return float(_loss(weights, *_windows(_text["validation"], drawn, _VALIDATED)))


def train_by(mode, compression, seed, steps, local_steps, by_file):
    """Trains a model from the beginning, with exchanges in each step or with local steps.

    The clock stands still while steps are traced and losses are computed.

    Args:
        mode: "synchronous", or what `OuterSync` takes as `outer`.
        compression: of gradients, or of changes.
        seed: of the weights and the batches.
        steps: how many, a multiple of `local_steps`.
        local_steps: after how many steps losses are computed, and outer rounds come.
        by_file: whether each worker draws from files of its own, not from all.

    Returns:
        On worker 0 a list of (step, seconds, bytes pushed by it, validation loss), else an empty
        one.
    """
    weights = _weights(np.random.default_rng(seed))
    applied = _optimizer("adam", steps)
    applied.build(weights)
    random = tf.random.Generator.from_seed(1000 * seed + tf_byteps.rank())
    text, exchanges = _text["train"], mode == "synchronous"
    if by_file:
        each = len(text) // tf_byteps.size()
        text = text[tf_byteps.rank() * each :][:each]

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            loss = _loss(weights, *_windows(text, random, _BATCH))
        gradients = tape.gradient(loss, [weight.value for weight in weights])
        if exchanges:
            name = f"{compression} {seed} {by_file}"
            gradients = tf_byteps.push_pull(
                gradients, op="average", name=name, compression=compression
            )
        applied.apply(gradients, weights)

    step.get_concrete_function()
    outer = None
    if not exchanges:
        outer = tf_byteps.OuterSync(weights, local_steps, mode, compression=compression)
    found, seconds, pushed = [], 0.0, 0
    for _ in range(steps // local_steps):
        _meet()
        before, began = _engine.worker_counters()["pushed_bytes"], time.monotonic()
        for _ in range(local_steps):
            step()
            if outer is not None:
                outer.step()
        seconds += time.monotonic() - began
        pushed += _engine.worker_counters()["pushed_bytes"] - before
        if tf_byteps.rank() == 0:
            done = local_steps * (len(found) + 1)
            found.append((done, seconds, pushed, _validation_loss(weights)))
    return found


def _meet():
    tf_byteps.push_pull(tf.constant(0.0), name="all begin")


def _optimizer(name, steps):
    first = {"sgd": 0.1, "adam": 0.002}[name]
    rate = keras.optimizers.schedules.PolynomialDecay(first, steps, first / 10)
    if name == "sgd":
        return keras.optimizers.SGD(rate, momentum=0.9)
    return keras.optimizers.Adam(rate)


def _weights(random):
    characters, embedding, hidden, output = _WIDTHS
    shapes = [(characters, embedding), (_CONTEXT * embedding, hidden), (hidden, output)]
    scales = [0.1, (2 / (_CONTEXT * embedding)) ** 0.5, (1 / hidden) ** 0.5]
    matrices = [
        keras.Variable(random.normal(scale=scale, size=shape).astype(np.float32))
        for shape, scale in zip(shapes, scales, strict=True)
    ]
    biases = [keras.Variable(np.zeros(width, np.float32)) for width in (hidden, output)]
    return matrices + biases


def _windows(text, random, count):
    """`count` times some characters, and the next one."""
    begins = random.uniform([count, 1], 0, len(text) - _CONTEXT, tf.int32)
    return tf.gather(text, begins + tf.range(_CONTEXT)), tf.gather(text, begins[:, 0] + _CONTEXT)


def _loss(weights, context, following):
    table, first, second, first_bias, second_bias = (weight.value for weight in weights)
    # Not tf.gather: its gradient is rows, which are not compressed.
    embedded = tf.reshape(tf.one_hot(context, _CHARACTERS), [-1, _CHARACTERS]) @ table
    hidden = tf.nn.relu(tf.reshape(embedded, [-1, first.shape[0]]) @ first + first_bias)
    logits = hidden @ second + second_bias
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(following, logits)
    return tf.reduce_mean(losses)
