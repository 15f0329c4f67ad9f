"""Training speed on made-up data: samples per second, alone and with others.

    python keras_synthetic_benchmark.py --model resnet50 --strategy none
    bpslaunch -np 4 python keras_synthetic_benchmark.py --model resnet50 --baseline 750
    python keras_synthetic_benchmark.py --model resnet50 --strategy mirrored --baseline 750

The data is on the device from the beginning, so that nothing but the step is measured. All
strategies run the same loop, or with `--fit` the same call of `Model.fit`, whose batches come from
the host. `--baseline` is what `--strategy none` has printed; with it the efficiency is printed,
too: the speed over the number of replicas and the speed alone.
"""

import argparse
import os
import statistics
import time

import keras
import numpy as np
import tensorflow as tf

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


_JIT = {"auto": "auto", "on": True, "off": False}


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


def measure_fit(strategy, model_name, batch, options):
    """Milliseconds of a step, on average over each epoch of `Model.fit`, and the model."""
    make, _ = MODELS[model_name]
    with strategy.scope():
        model, data, classes = make(batch)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        inside = options.steps_per_execution
        jit = _JIT[options.jit]
        model.compile(_optimizer(), loss, jit_compile=jit, steps_per_execution=inside)
    # The same on every replica.
    pieces = [(data, _labels(model, classes, batch))] * strategy.num_replicas_in_sync
    batches = tf.data.Dataset.from_tensors(tuple(map(np.concatenate, zip(*pieces)))).repeat()
    steps = options.steps * inside
    model.fit(batches, steps_per_epoch=options.warmup * inside, verbose=0, shuffle=False)
    epochs = _Epochs()
    model.fit(
        batches,
        epochs=options.rounds,
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


def main():
    options = parse_arguments()
    if options.mixed:
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    keras.utils.set_random_seed(1)
    strategy, prints = make_strategy(
        options.strategy, cross_step=options.cross_step, sparse_as_dense=options.dense
    )
    batch = options.batch or MODELS[options.model][1]
    inside = options.steps_per_execution
    if options.fit:
        times, model = measure_fit(strategy, options.model, batch, options)
    else:
        step, model = make_step(strategy, options.model, batch, options.dense, inside)
        times = measure(step, options.warmup, options.steps, options.rounds, inside)
        if options.profile:
            profile(step, f"{options.profile}/process-{os.getpid()}")
    if not prints:
        return
    replicas = strategy.num_replicas_in_sync
    milliseconds = statistics.median(times)
    rate = replicas * batch / milliseconds * 1e3
    line = (
        f"{options.model} {model.count_params() / 1e6:.1f}M parameters, {options.strategy}, "
        f"{replicas} replica(s) with batch {batch}, "
        f"{'mixed_bfloat16' if options.mixed else 'float32'}"
        f"{', compiled' if options.fit and model.jit_compile else ''}: "
        f"{milliseconds:.2f} ms a step ({min(times):.2f} to {max(times):.2f}), "
        f"{rate:.1f} samples/s"
    )
    if options.baseline:
        line += f", efficiency {rate / replicas / options.baseline:.1%}"
    print(line, flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", choices=MODELS, default="resnet50")
    parser.add_argument(
        "--strategy", choices=["byteps", "mirrored", "mwms", "none"], default="byteps"
    )
    parser.add_argument("--batch", type=int, help="samples of a replica in a step")
    parser.add_argument("--mixed", action="store_true", help="compute in bfloat16")
    parser.add_argument(
        "--dense",
        action="store_true",
        help="gradients of embeddings, too; with --fit by BytePSStrategy alone",
    )
    parser.add_argument("--fit", action="store_true", help="train with Model.fit")
    parser.add_argument(
        "--cross-step", action="store_true", help="so, and BytePSStrategy's steps overlap"
    )
    parser.add_argument(
        "--jit", choices=_JIT, default="auto", help="with --fit: whether XLA compiles the step"
    )
    parser.add_argument(
        "--steps-per-execution", type=int, default=1, help="of a call, as Keras's compile has it"
    )
    parser.add_argument("--warmup", type=int, default=10, help="calls before measuring")
    parser.add_argument("--steps", type=int, default=10, help="calls of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", help="folder for a profile of 4 more calls")
    parser.add_argument("--baseline", type=float, help="samples/s of one replica alone")
    options = parser.parse_args()
    options.fit = options.fit or options.cross_step
    if options.cross_step and options.strategy != "byteps":
        parser.error(f"--cross-step is a mode of --strategy byteps, not of {options.strategy}")
    if options.fit and options.profile:
        parser.error("--profile does not work with --fit: leave one of them out")
    return options


if __name__ == "__main__":
    main()
