"""What the workers of the tests in this folder do."""

import contextlib
import gc
import os
import tempfile

import keras
import numpy as np
import tensorflow as tf
import wrong_reductions
from tensorflow.python.eager import context

import tf_byteps as bps
from tf_byteps import timeline
from tf_byteps.strategy.input import fetching, pieces as input_pieces

GLOBAL_BATCH = 48
STEPS = 20


# Parity with a single process.


def train(
    optimizer="sgd",
    dtype="float32",
    rows=240,
    plain=False,
    fault=None,
    synchronized=False,
    source="arrays",
    **compile_arguments,
):
    """Trains a small model for 20 steps of 48 rows.

    Returns:
        A dictionary: the loss of each epoch, evaluation, predictions and weights.
    """
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)
    keras.utils.set_random_seed(1)
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, 8)).astype(dtype)
    y = random.normal(size=(rows, 1)).astype(dtype)
    strategy = None if plain else bps.BytePSStrategy()
    with (
        contextlib.nullcontext() if plain else strategy.scope(),
        wrong_reductions.wrong_reduction(fault),
    ):
        if not plain:
            keras.utils.set_random_seed(1 + bps.rank())  # only worker 0's values may count
        model = keras.Sequential(
            [
                keras.layers.Dense(16, activation="tanh"),
                keras.layers.Dense(16, activation="tanh"),
                keras.layers.Dense(16, activation="tanh"),
                *([keras.layers.BatchNormalization(synchronized=True)] if synchronized else []),
                keras.layers.Dense(1),
            ]
        )
        model.compile(_optimizer(optimizer), "mse", metrics=["mae"], **compile_arguments)
        data = {"x": x, "y": y, "batch_size": GLOBAL_BATCH}
        if source == "dataset":
            data = {"x": tf.data.Dataset.from_tensor_slices((x, y)).batch(GLOBAL_BATCH)}
        epochs = -(-STEPS // -(-rows // GLOBAL_BATCH))
        history = model.fit(**data, epochs=epochs, shuffle=False, verbose=0)
        result = {
            "losses": np.array(history.history["loss"]),
            "evaluation": np.array(model.evaluate(x, y, batch_size=GLOBAL_BATCH, verbose=0)),
            "predictions": model.predict(x, batch_size=GLOBAL_BATCH, verbose=0),
        }
        for index, weights in enumerate(model.get_weights()):
            result[f"weights {index}"] = weights
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    return result


def _optimizer(name):
    return {
        "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
        "adam": lambda: keras.optimizers.Adam(0.01),
        "clipped": lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.1),
        "accumulating": lambda: keras.optimizers.SGD(
            0.1, gradient_accumulation_steps=2, clipnorm=0.1
        ),
        "averaging": lambda: keras.optimizers.AdamW(0.01, use_ema=True, ema_overwrite_frequency=3),
    }[name]()


# Which rows each worker sees.


class Recorder(keras.Model):
    """Records the rows that its training steps get."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.epochs = []
        self.steps = []

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        def record(x):
            self.epochs[-1].extend(int(value) for value in x.ravel())
            self.steps[-1] += 1
            return np.int32(0)

        recorded = tf.numpy_function(record, [data[0]], tf.int32)
        with tf.control_dependencies([recorded]):
            return super().train_step(data)


class NewEpoch(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.model.epochs.append([])
        self.model.steps.append(0)


def record(rows, source="arrays", shuffle=True, seed=None):
    """Rows 1, 2, ... as each epoch's steps of this worker got them; 0 marks an empty piece.

    Two fits of two epochs. With `seed` and arrays, worker r draws r numbers from TensorFlow before.
    """
    strategy = bps.BytePSStrategy()
    if seed is not None:
        tf.random.set_seed(seed)
        for _ in range(bps.rank() if source == "arrays" else 0):
            tf.random.uniform([])
    with strategy.scope():
        model = Recorder()
        model.compile("sgd", "mse")
    x = np.arange(1.0, rows + 1).reshape(rows, 1).astype("float32")
    data = {"x": x, "y": x, "batch_size": 8, "shuffle": shuffle}
    if source == "dataset":
        dataset = tf.data.Dataset.from_tensor_slices((x, x))
        data = {"x": (dataset.shuffle(rows) if shuffle else dataset).batch(8)}
    for _ in range(2):
        model.fit(**data, epochs=2, verbose=0, callbacks=[NewEpoch()])
    epochs = [[int(row) for row in epoch] for epoch in model.epochs]
    return {"epochs": epochs, "steps": [int(steps) for steps in model.steps]}


def different_seeds():
    """Each worker sets a seed of its own: the shuffles cannot agree."""
    tf.random.set_seed(bps.rank() + 5)
    try:
        record(16, "dataset")
    finally:
        tf.random.set_seed(0)


def different_arrays():
    record(16 + bps.rank(), shuffle=False)


def empty_piece_keeps_state():
    """One step in which only worker 0 has rows; statistics and metrics before and after."""
    strategy = bps.BytePSStrategy()
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input([2]), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
        )
        model.compile("sgd", "mse", metrics=["mae"])
    moving_mean = model.layers[0].moving_mean
    dataset = tf.data.Dataset.from_tensors((tf.fill([1, 2], 100.0), tf.ones([1, 1])))
    counts, in_the_step = [], []

    class Counts(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            counts.append([float(v.numpy()) for v in model.metrics_variables if "count" in v.path])
            in_the_step.append(moving_mean.numpy().tolist())

    history = model.fit(dataset, epochs=1, verbose=0, callbacks=[Counts()])
    return {
        "moving mean": in_the_step[0],
        "moving mean of all": moving_mean.numpy().tolist(),
        "counts": counts,
        "loss": history.history["loss"],
        "kernel": model.layers[-1].kernel.numpy().tolist(),
    }


# tf.distribute's own interface.


def pieces():
    """(rows, workers) -> the range of rows of each worker."""
    cases = [(16, 4), (10, 4), (8, 3), (4, 3), (1, 4), (7, 2), (9, 3)]
    return {
        (rows, size): [input_pieces.bounds(rows, rank, size) for rank in range(size)]
        for rows, size in cases
    }


def reductions():
    strategy = bps.BytePSStrategy()
    rank = bps.rank()
    value = tf.constant([1.0, 2.0]) * (rank + 1)
    results = {
        "sum": strategy.reduce("SUM", value, axis=None),
        "mean": strategy.reduce(tf.distribute.ReduceOp.MEAN, value, axis=None),
        "sum over rows": strategy.reduce("SUM", value, axis=0),
        # Workers have 1, 2, ... rows.
        "mean over rows": strategy.reduce("MEAN", tf.fill([rank + 1], float(rank)), axis=0),
        "gather": strategy.gather(tf.fill([rank + 1, 2], rank), axis=0),
        "gather 1": strategy.gather(tf.fill([2, rank + 1], rank), axis=1),
        "value": strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(
                [context.replica_id_in_sync_group, context.num_replicas_in_sync]
            )
        ),
    }

    @tf.function
    def function(x):
        def replica(x):
            context = tf.distribute.get_replica_context()
            return {
                "replica": context.replica_id_in_sync_group,
                "all_reduce": context.all_reduce("SUM", [x, {"mean": x + 1.0}]),
                "all_gather": context.all_gather(x[None], axis=0),
            }

        return strategy.run(replica, args=(x,))

    results["run"] = function(tf.constant(float(rank)))
    return strategy.num_replicas_in_sync, tf.nest.map_structure(lambda x: x.numpy(), results)


def custom_loop():
    """strategy.run in a tf.function with an optimizer, over batches with uneven pieces."""
    strategy = bps.BytePSStrategy()
    with strategy.scope():
        weights = tf.Variable(tf.fill([3], float(bps.rank() + 1)))
        switch = tf.Variable(bps.rank() == 0)
        count = tf.Variable(bps.rank() + 1, dtype=tf.uint32)
        optimizer = keras.optimizers.Adam(0.1)
    dataset = tf.data.Dataset.range(1, 22).map(lambda i: tf.cast(i, tf.float32)).batch(8)
    dataset = strategy.experimental_distribute_dataset(dataset)

    @tf.function
    def step(x):
        def replica(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(x) * tf.reduce_sum(weights**2) / 8
            optimizer.apply_gradients(zip(tape.gradient(loss, [weights]), [weights], strict=True))
            return loss

        return strategy.reduce("SUM", strategy.run(replica, args=(x,)), axis=None)

    losses = [float(step(x)) for x in dataset]
    return losses, weights.numpy().tolist(), bool(switch.numpy()), int(count.numpy())


def embeddings():
    """Each worker looks up its own row and that of all; the exchanges, and the table after them."""
    results = []
    for sparse_as_dense in (False, True):
        strategy = bps.BytePSStrategy(sparse_as_dense=sparse_as_dense)
        with strategy.scope():
            table = tf.Variable(tf.zeros([5, 2]), name=f"table{sparse_as_dense}")
            optimizer = keras.optimizers.SGD(1.0)
            optimizer.build([table])

        def replica(table=table, optimizer=optimizer):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.gather(table, [1 + bps.rank(), 4]))
            optimizer.apply([tape.gradient(loss, table)], [table])

        step = tf.function(lambda strategy=strategy, replica=replica: strategy.run(replica))
        operations = {each.type for each in step.get_concrete_function().graph.get_operations()}
        step()
        exchanges = sorted(each for each in operations if each.startswith("BytePS"))
        results.append([exchanges, table.numpy().tolist()])
    return results


def own_datasets():
    """Datasets that are each worker's own, of different lengths; and sharding by files."""
    strategy = bps.BytePSStrategy()
    rank = bps.rank()
    off = tf.data.Options()
    off.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    by_file = tf.data.Options()
    by_file.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE

    def steps(dataset):
        return [batch.numpy().tolist() for batch in dataset]

    results = {}
    dataset = strategy.distribute_datasets_from_function(
        lambda context: tf.data.Dataset.range(3 + 2 * context.input_pipeline_id).batch(2)
    )
    results["from function"] = [steps(dataset), steps(dataset)]
    dataset = tf.data.Dataset.range(4 * (rank + 1)).filter(lambda i: True).batch(3)
    dataset = strategy.experimental_distribute_dataset(dataset.with_options(off))
    iterator = iter(dataset)
    next(iterator)
    del iterator  # an epoch that stops early must not put the workers out of step
    results["off"] = [steps(dataset), steps(dataset)]
    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, f"{number}.txt") for number in range(3)]
        for number, file in enumerate(files):
            with open(file, "w") as lines:
                lines.writelines(f"{number}{line}\n" for line in range(3 + number))
        dataset = tf.data.TextLineDataset(files).batch(4).with_options(by_file)
        results["file"] = steps(strategy.experimental_distribute_dataset(dataset))
    return results


def unbatched():
    bps.BytePSStrategy().experimental_distribute_dataset(tf.data.Dataset.range(5))


def fetched():
    """What a GPU would get of a dataset, twice, and the dataset; which could be fetched; and the
    functions that TensorFlow keeps when a second dataset like it has been read."""
    numbers = tf.data.Dataset.range(7).shuffle(7, seed=bps.rank(), reshuffle_each_iteration=False)
    dataset = numbers.map(lambda i: {"a": tf.cast(i, tf.int32), "b": (i > 3, i / 2)}).batch(2)
    ahead = fetching.fetched(dataset, "/device:CPU:0")

    def read(dataset):
        return [[part.numpy().tolist() for part in tf.nest.flatten(each)] for each in dataset]

    specs = {
        "numbers": dataset.element_spec,
        "text": (tf.TensorSpec([2]), tf.TensorSpec([2], tf.string)),
        "sparse": tf.SparseTensorSpec([2, 2]),
        "ragged": tf.RaggedTensorSpec([2, None]),
    }
    can = [name for name, spec in specs.items() if fetching.can_fetch(spec)]
    results = [read(ahead), read(ahead)]
    known = set(context.context().list_function_names())
    read(fetching.fetched(dataset, "/device:CPU:0"))
    gc.collect()
    kept_functions = sorted(set(context.context().list_function_names()) - known)
    return read(dataset), results, can, kept_functions


def missing_variable():
    """Worker 0's model has a layer more."""
    strategy = bps.BytePSStrategy()
    with strategy.scope():
        layers = [keras.layers.Dense(1)]
        if bps.rank() == 0:
            layers.insert(0, keras.layers.Dense(7, name="only_on_worker_0"))
        model = keras.Sequential(layers)
        model.compile("sgd", "mse")
    model.fit(np.ones([8, 2]), np.ones([8, 1]), batch_size=8, verbose=0)


def missing_variable_in_custom_loop():
    strategy = bps.BytePSStrategy()
    with strategy.scope():
        variables = [tf.Variable(tf.ones([2]), name="everywhere")]
        if bps.rank() == 0:
            variables.append(tf.Variable(tf.ones([3]), name="only_on_worker_0"))
    strategy.run(lambda: tf.reduce_sum(variables[0]))


def forgotten_variable():
    """Nobody holds it any more; Python has freed it on worker 0 only."""
    gc.disable()
    strategy = bps.BytePSStrategy()
    with strategy.scope():
        kept = tf.Variable(tf.fill([2], float(1 + bps.rank())))
        cycle = [tf.Variable(tf.ones([3]), name="forgotten")]
        cycle.append(cycle)
        del cycle
    if bps.rank() == 0:
        gc.collect()
    total = strategy.run(lambda: tf.reduce_sum(kept))
    gc.enable()
    return float(total)


class _Hashed(keras.layers.Layer):
    def call(self, inputs):
        buckets = tf.strings.to_hash_bucket_fast(tf.strings.as_string(inputs), 10)
        return inputs + tf.cast(buckets, inputs.dtype)


def not_for_xla():
    strategy = bps.BytePSStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input([2]), _Hashed(), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=True)
    model.fit(np.ones([8, 2]), np.ones([8, 1]), batch_size=8, verbose=0)


def stopped_from_outside():
    """Not by a callback, but by the thread that reads the last worker's input."""
    strategy = bps.BytePSStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        model.compile("sgd", "mse")

    def batches():
        for step in range(8):
            if step == 3 and bps.rank() == bps.size() - 1:
                model.stop_training = True
            yield np.ones([6, 2], "float32"), np.ones([6, 1], "float32")

    spec = tuple(tf.TensorSpec([6, length], tf.float32) for length in (2, 1))
    dataset = tf.data.Dataset.from_generator(batches, output_signature=spec)
    history = model.fit(dataset, epochs=3, verbose=0)
    return {"epochs": history.epoch, "steps": int(model.optimizer.iterations.numpy())}


def rows_asked_for():
    """How often the workers ask for the rows of a batch, with inputs of unknown length."""
    with bps.BytePSStrategy().scope():
        model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        model.compile("sgd", "mse")

    def batches():
        for _ in range(2):
            yield np.ones([6, 2], "float32"), np.ones([6, 1], "float32")

    spec = tuple(tf.TensorSpec([6, length], tf.float32) for length in (2, 1))
    dataset = tf.data.Dataset.from_generator(batches, output_signature=spec)
    with tempfile.TemporaryDirectory() as folder:
        bps.start_timeline(folder)
        model.fit(dataset, epochs=5, verbose=0)
        parts = timeline.read(bps.stop_timeline())
    return sum(part.tensor == "rows of the batch" for part in parts)


def stopped_where_an_epoch_ends():
    """With a callback that could have stopped after a batch."""
    with bps.BytePSStrategy().scope():
        model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        model.compile("sgd", "mse")

    def stop(epoch, logs):
        model.stop_training = epoch == 1 and bps.rank() == 0

    callback = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: None, on_epoch_end=stop
    )
    options = {"batch_size": 8, "epochs": 4, "verbose": 0, "callbacks": callback}
    return model.fit(np.ones([16, 2]), np.ones([16, 1]), **options).epoch


def optimizer_of_another_strategy():
    with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
        optimizer = keras.optimizers.Adam()
    with bps.BytePSStrategy().scope():
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(optimizer, "mse")
    model.fit(np.ones([8, 2]), np.ones([8, 1]), batch_size=8, verbose=0)


def overflow_on_one_worker():
    """Loss scaling with infinite gradients on the last worker only, in the second of 4 steps."""
    strategy = bps.BytePSStrategy()
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        optimizer = keras.optimizers.LossScaleOptimizer(
            keras.optimizers.SGD(0.01), initial_scale=64.0
        )
        model.compile(optimizer, "mse")
    x = np.ones([32, 2], "float32")
    x[15] = np.inf  # the last row of the second batch of 8
    history = model.fit(x, np.ones([32, 1]), batch_size=8, shuffle=False, verbose=0)
    return {
        "scale": float(optimizer.dynamic_scale.numpy()),
        "iterations": int(optimizer.iterations.numpy()),
        "weights": [weight.tolist() for weight in model.get_weights()],
        "epochs": len(history.history["loss"]),
    }


def two_models():
    """Two models whose variables have the same paths and shapes, trained in one function."""
    strategy = bps.BytePSStrategy()
    with strategy.scope():
        models, optimizers = [], []
        for _ in range(2):
            model = keras.Sequential(
                [keras.Input([2]), keras.layers.Dense(1, name="same")], name="m"
            )
            models.append(model)
            optimizers.append(keras.optimizers.SGD(0.1))
            model.layers[0].set_weights([np.ones([2, 1]), np.zeros([1])])

    @tf.function
    def step(x):
        def replica(x):
            for factor, model, optimizer in zip((1.0, 10.0), models, optimizers, strict=True):
                with tf.GradientTape() as tape:
                    loss = factor * tf.reduce_sum(model(x))
                gradients = tape.gradient(loss, model.trainable_variables)
                optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        strategy.run(replica, args=(x,))

    step(tf.fill([1, 2], float(bps.rank() + 1)))
    return [model.layers[0].kernel.numpy().ravel().tolist() for model in models]
