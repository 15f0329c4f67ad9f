"""Training speed on made-up data: samples per second, alone and with others.

    python keras_synthetic_benchmark.py --model resnet50 --strategy none
    bpslaunch -np 4 python keras_synthetic_benchmark.py --model resnet50 --baseline 750
    python keras_synthetic_benchmark.py --model resnet50 --strategy mirrored --baseline 750

The data is on the device from the beginning, so that nothing but the step is measured. All
strategies run the same loop, or with `--fit` the same call of `Model.fit`, whose batches come from
the host. `--baseline` is what `--strategy none` has printed; with it the efficiency is printed,
too: the speed over the number of replicas and the speed alone.
"""

import os
import statistics
import time

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags

IMAGE_CLASSES = 1000
BERT_VOCABULARY = 30522
GPT_VOCABULARY = 50257


def image_model(build):
    def make(batch):
        model = build(weights=None, classes=IMAGE_CLASSES, classifier_activation=None)
        images = np.random.default_rng(0).normal(size=(batch, 224, 224, 3)).astype(np.float32)
        return model, images, IMAGE_CLASSES

    return make


class _Positions(keras.layers.Layer):
    """Adds a trained vector for each position."""

    def build(self, shape):
        self.table = self.add_weight(shape=shape[1:], name="positions")

    def call(self, x):
        return x + self.table


def bert_large(batch, layers=24, width=1024, heads=16, length=128):
    """BERT-large with a classifier of two classes: 335 million parameters."""
    tokens = keras.Input([length], dtype="int32")
    x = keras.layers.Embedding(BERT_VOCABULARY, width)(tokens)
    x = _Positions()(x)
    x = keras.layers.LayerNormalization(epsilon=1e-12)(x)
    for _ in range(layers):
        attended = keras.layers.MultiHeadAttention(heads, width // heads)(x, x)
        x = keras.layers.LayerNormalization(epsilon=1e-12)(x + attended)
        hidden = keras.layers.Dense(4 * width, activation="gelu")(x)
        hidden = keras.layers.Dense(width)(hidden)
        x = keras.layers.LayerNormalization(epsilon=1e-12)(x + hidden)
    pooled = keras.layers.Dense(width, activation="tanh")(x[:, 0])
    model = keras.Model(tokens, keras.layers.Dense(2)(pooled))
    data = np.random.default_rng(0).integers(0, BERT_VOCABULARY, size=(batch, length))
    return model, data.astype(np.int32), 2


def gpt2(batch, layers=12, width=768, heads=12, length=512):
    """GPT-2 that predicts every next token: 163 million parameters, no table used twice."""
    tokens = keras.Input([length], dtype="int32")
    x = _Positions()(keras.layers.Embedding(GPT_VOCABULARY, width)(tokens))
    for _ in range(layers):
        normal = keras.layers.LayerNormalization(epsilon=1e-5)(x)
        attention = keras.layers.MultiHeadAttention(heads, width // heads)
        x = x + attention(normal, normal, use_causal_mask=True)
        normal = keras.layers.LayerNormalization(epsilon=1e-5)(x)
        hidden = keras.layers.Dense(4 * width, activation="gelu")(normal)
        x = x + keras.layers.Dense(width)(hidden)
    x = keras.layers.LayerNormalization(epsilon=1e-5)(x)
    model = keras.Model(tokens, keras.layers.Dense(GPT_VOCABULARY, use_bias=False)(x))
    data = np.random.default_rng(0).integers(0, GPT_VOCABULARY, size=(batch, length))
    return model, data.astype(np.int32), GPT_VOCABULARY


def mlp(batch):
    """Small, to try the program."""
    layers = [keras.layers.Dense(256, activation="relu"), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input([64]), *layers])
    return model, np.random.default_rng(0).normal(size=(batch, 64)).astype(np.float32), 10


MODELS = {  # the function that makes it, and a replica's batch
    "resnet50": (image_model(keras.applications.ResNet50), 128),
    "vgg16": (image_model(keras.applications.VGG16), 64),
    "bert-large": (bert_large, 64),
    "gpt2": (gpt2, 16),
    "mlp": (mlp, 32),
}


_COMPILES = {"auto": "auto", "on": True, "off": False}

_MODEL = flags.DEFINE_enum("model", "resnet50", list(MODELS), "what is trained")
_STRATEGY = flags.DEFINE_enum(
    "strategy", "byteps", ["byteps", "mirrored", "mwms", "none"], "who adds the gradients"
)
_BATCH = flags.DEFINE_integer("batch", None, "samples of a replica in a step")
_MIXED = flags.DEFINE_bool("mixed", False, "compute in bfloat16")
_DENSE = flags.DEFINE_bool(
    "dense", False, "gradients of embeddings, too; with --fit by BytePSStrategy alone"
)
_FIT = flags.DEFINE_bool("fit", False, "train with Model.fit")
_CROSS_STEP = flags.DEFINE_bool("cross-step", False, "so, and BytePSStrategy's steps overlap")
_JIT = flags.DEFINE_enum(
    "jit", "auto", list(_COMPILES), "with --fit: whether XLA compiles the step"
)
_STEPS_PER_EXECUTION = flags.DEFINE_integer(
    "steps-per-execution", 1, "of a call, as Keras's compile has it", lower_bound=1
)
_WARMUP = flags.DEFINE_integer("warmup", 10, "calls before measuring", lower_bound=1)
_STEPS = flags.DEFINE_integer("steps", 10, "calls of a round", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "how often the speed is taken", lower_bound=1)
_PROFILE = flags.DEFINE_string("profile", None, "folder for a profile of 4 more calls")
_BASELINE = flags.DEFINE_float("baseline", None, "samples/s of one replica alone")


def make_strategy(name, **options):
    """The strategy, and whether this process is the one that prints."""
    if name == "none":
        return tf.distribute.get_strategy(), True
    if name == "mirrored":
        return tf.distribute.MirroredStrategy(), True
    if name == "mwms":
        # By itself it would send the gradients of GPUs through TensorFlow's own servers.
        has_gpu = bool(tf.config.list_physical_devices("GPU"))
        kinds = tf.distribute.experimental.CommunicationImplementation
        kind = kinds.NCCL if has_gpu else kinds.AUTO
        options = tf.distribute.experimental.CommunicationOptions(implementation=kind)
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
        return strategy, strategy.cluster_resolver.task_id in (None, 0)
    import tf_byteps  # the others run without it

    strategy = tf_byteps.BytePSStrategy(**options)
    return strategy, tf_byteps.rank() == 0


def _labels(model, classes, batch):
    shape = (batch, *model.output_shape[1:-1])
    return np.random.default_rng(1).integers(0, classes, size=shape)


def _optimizer():
    return keras.optimizers.SGD(0.01, momentum=0.9)


def make_step(strategy, model_name, batch, dense=False, steps_per_execution=1):
    """A function that trains all replicas for some steps and returns the last loss of one of them,
    and the model. `dense`: gradients of embeddings become dense tensors before they are reduced."""
    make, _ = MODELS[model_name]
    with strategy.scope():
        model, data, classes = make(batch)
        labels = _labels(model, classes, batch)
        optimizer = _optimizer()
        optimizer.build(model.trainable_variables)

    def replica_step():
        with tf.GradientTape() as tape:
            logits = tf.cast(model(inputs, training=True), tf.float32)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
            loss = tf.reduce_mean(losses) / strategy.num_replicas_in_sync
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        if dense:
            gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        optimizer.apply(gradients, variables)
        return loss * strategy.num_replicas_in_sync

    with strategy.scope():  # on the device from now on
        inputs = tf.Variable(data, trainable=False)
        targets = tf.Variable(labels, trainable=False)

    def one_step():
        return strategy.experimental_local_results(strategy.run(replica_step))[0]

    @tf.function(jit_compile=False)
    def step():
        if steps_per_execution == 1:
            return one_step()
        loss = tf.zeros([])
        for _ in tf.range(steps_per_execution):
            loss = one_step()
        return loss

    return step, model


def measure(step, warmup, steps, rounds, steps_per_execution=1):
    """Milliseconds of a step, on average over each round of `steps` calls."""
    for _ in range(warmup):
        float(step())
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(steps):
            loss = step()
        last = float(loss)  # waits for the device
        times.append((time.perf_counter() - begin) / steps / steps_per_execution * 1e3)
    assert np.isfinite(last), last
    return times


class _Epochs(keras.callbacks.Callback):
    """Takes the time of every epoch."""

    def __init__(self):
        super().__init__()
        self.seconds = []

    def on_epoch_begin(self, epoch, logs=None):
        self._begin = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        assert np.isfinite(logs["loss"]), logs
        self.seconds.append(time.perf_counter() - self._begin)


def measure_fit(strategy, model_name, batch):
    """Milliseconds of a step, on average over each epoch of `Model.fit`, and the model."""
    make, _ = MODELS[model_name]
    with strategy.scope():
        model, data, classes = make(batch)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        inside = _STEPS_PER_EXECUTION.value
        jit = _COMPILES[_JIT.value]
        model.compile(_optimizer(), loss, jit_compile=jit, steps_per_execution=inside)
    # The same on every replica.
    pieces = [(data, _labels(model, classes, batch))] * strategy.num_replicas_in_sync
    batches = tf.data.Dataset.from_tensors(tuple(map(np.concatenate, zip(*pieces)))).repeat()
    steps = _STEPS.value * inside
    model.fit(batches, steps_per_epoch=_WARMUP.value * inside, verbose=0, shuffle=False)
    epochs = _Epochs()
    model.fit(
        batches,
        epochs=_ROUNDS.value,
        steps_per_epoch=steps,
        verbose=0,
        shuffle=False,
        callbacks=[epochs],
    )
    return [seconds / steps * 1e3 for seconds in epochs.seconds], model


def profile(step, folder, steps=4):
    """Writes TensorFlow's profile of some steps."""
    with tf.profiler.experimental.Profile(folder):
        for _ in range(steps):
            float(step())


def main(arguments):
    check(arguments)
    if _MIXED.value:
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    keras.utils.set_random_seed(1)
    strategy, prints = make_strategy(
        _STRATEGY.value, cross_step=_CROSS_STEP.value, sparse_as_dense=_DENSE.value
    )
    batch = _BATCH.value or MODELS[_MODEL.value][1]
    inside = _STEPS_PER_EXECUTION.value
    fits = _FIT.value or _CROSS_STEP.value
    if fits:
        times, model = measure_fit(strategy, _MODEL.value, batch)
    else:
        step, model = make_step(strategy, _MODEL.value, batch, _DENSE.value, inside)
        times = measure(step, _WARMUP.value, _STEPS.value, _ROUNDS.value, inside)
        if _PROFILE.value:
            profile(step, f"{_PROFILE.value}/process-{os.getpid()}")
    if not prints:
        return
    replicas = strategy.num_replicas_in_sync
    milliseconds = statistics.median(times)
    rate = replicas * batch / milliseconds * 1e3
    line = (
        f"{_MODEL.value} {model.count_params() / 1e6:.1f}M parameters, {_STRATEGY.value}, "
        f"{replicas} replica(s) with batch {batch}, "
        f"{'mixed_bfloat16' if _MIXED.value else 'float32'}"
        f"{', compiled' if fits and model.jit_compile else ''}: "
        f"{milliseconds:.2f} ms a step ({min(times):.2f} to {max(times):.2f}), "
        f"{rate:.1f} samples/s"
    )
    if _BASELINE.value:
        line += f", efficiency {rate / replicas / _BASELINE.value:.1%}"
    print(line, flush=True)


def check(arguments):
    """Refuses what it would ignore."""
    problem = None
    if len(arguments) > 1:
        problem = f"all options have names; there is no use for {' '.join(arguments[1:])}"
    elif _CROSS_STEP.value and _STRATEGY.value != "byteps":
        problem = f"--cross-step is a mode of --strategy byteps, not of {_STRATEGY.value}"
    elif (_FIT.value or _CROSS_STEP.value) and _PROFILE.value:
        problem = "--profile does not work with --fit: leave one of them out"
    if problem:
        raise app.UsageError(problem, exitcode=2)


if __name__ == "__main__":
    app.run(main)
