"""What the workers of test_saving.py do: programs of one process, which name one path."""

import json
import os
import pathlib
import signal

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.checkpoint import functional_saver

import tf_byteps as bps
from tf_byteps.strategy.saving import beside

_WIDTH = 200


def _meet(name):
    """Until all workers are here, so that one can look at what all have done."""
    return bps.allgather_object(None, name=name)


def _hidden(folder):
    """What is left of files in progress."""
    return sorted(
        path.name
        for path in pathlib.Path(folder).rglob("*")
        if ".saving-" in path.name or path.name.endswith(("_temp", ".lockfile"))
    )


class _Counting:
    """Counts the shards of checkpoints that this worker writes."""

    def __enter__(self):
        self.count, self._original = 0, functional_saver._single_shard_save
        functional_saver._single_shard_save = self._save
        return self

    def _save(self, *args, **kwargs):
        self.count += tf.executing_eagerly()  # not where a SavedModel saves itself
        return self._original(*args, **kwargs)

    def __exit__(self, *_):
        functional_saver._single_shard_save = self._original


def _model():
    keras.utils.set_random_seed(4)
    return keras.Sequential(
        [keras.Input([_WIDTH]), keras.layers.Dense(_WIDTH, "tanh"), keras.layers.Dense(1)]
    )


def _trained():
    with bps.BytePSStrategy().scope():
        model = _model()
        model.compile(keras.optimizers.Adam(0.01), "mse")
    x = np.random.RandomState(0).normal(size=(12, _WIDTH)).astype("float32")
    model.fit(x, x[:, :1], batch_size=6, verbose=0, shuffle=False)
    return model


def managed_checkpoints(folder, saves, restart=False):
    """A custom loop that saves after each step, and reads at once what it has saved."""
    strategy = bps.BytePSStrategy()
    with strategy.scope():
        model = _model()
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)
        step = tf.Variable(0)
    x = np.random.RandomState(0).normal(size=(6, _WIDTH)).astype("float32")
    batches = iter(
        strategy.experimental_distribute_dataset(
            tf.data.Dataset.from_tensors((x, x[:, :1])).repeat()
        )
    )

    @tf.function
    def train(batch):
        def replica(x, y):
            with tf.GradientTape() as tape:
                loss = tf.nn.compute_average_loss(
                    tf.reduce_mean((model(x) - y) ** 2, axis=1), global_batch_size=6
                )
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return strategy.reduce("SUM", strategy.run(replica, batch), axis=None)

    saved = tf.train.Checkpoint(model=model, optimizer=optimizer, step=step)
    manager = tf.train.CheckpointManager(saved, folder, max_to_keep=2)
    begin = manager.latest_checkpoint
    status = saved.restore(begin)
    if begin:
        status.assert_existing_objects_matched()
    other = keras.models.clone_model(model)
    with _Counting() as written:
        for _ in range(saves):
            train(next(batches))
            step.assign_add(1)
            manager.save()
            other.set_weights([np.zeros_like(weights) for weights in model.get_weights()])
            tf.train.Checkpoint(model=other).restore(manager.latest_checkpoint).expect_partial()
            for mine, theirs in zip(model.get_weights(), other.get_weights(), strict=True):
                np.testing.assert_array_equal(mine, theirs)
    _meet(f"all have saved {restart}")
    names = sorted(path.name for path in pathlib.Path(folder).iterdir())
    return {
        "begin": begin and os.path.basename(begin),
        "step": int(step),
        "written": written.count,
        "latest": os.path.basename(tf.train.latest_checkpoint(folder)),
        "files": names,
        "hidden": _hidden(folder),
        "same": model.get_weights()[0][0, :3].tolist(),
    }


def killed_and_started_again(folder, saves):
    """What a run that was killed can have left: TensorFlow's and our folders, a manager's state."""
    path = pathlib.Path(folder)
    if bps.rank() == 0:
        (path / "ckpt-7_temp").mkdir()
        (path / "ckpt-7_temp" / "part-00000-of-00001.index").write_bytes(b"half")
        process = os.fork()
        if process == 0:
            with beside.folder(path / "ckpt-7") as content:
                (content / "ckpt-7.index").write_bytes(b"half")
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(process, 0)
        assert list(path.glob(".saving-*/content/ckpt-7.index"))
    _meet("left behind")
    return managed_checkpoints(folder, saves, restart=True)


def each_way(folder, repeats):
    """Each way to write a model, by all workers, again and again; each is read at once."""
    model = _trained()
    x = np.random.RandomState(1).normal(size=(3, _WIDTH)).astype("float32")
    expected = model(x).numpy()
    module = tf.Module()
    table = tf.lookup.StaticVocabularyTable(
        tf.lookup.TextFileInitializer(
            _vocabulary(folder),
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        ),
        1,
    )
    module.model, module.table = model, table
    module.answer = tf.function(
        lambda words: tf.cast(table.lookup(words), tf.float32) + model.weights[-1][0],
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    words = tf.constant(["a", "c", "x"])
    answers = module.answer(words).numpy()
    other = keras.models.clone_model(model)
    with _Counting() as written:
        for number in range(repeats):
            path = os.path.join(folder, "written")
            tf.train.Checkpoint(model=model).write(path)
            other.set_weights([np.zeros_like(weights) for weights in other.get_weights()])
            tf.train.Checkpoint(model=other).read(path).assert_existing_objects_matched()
            np.testing.assert_array_equal(other(x), expected)

            saved = tf.train.Checkpoint(model=model)
            path = saved.save(os.path.join(folder, f"saved{number}"))
            other.set_weights([np.zeros_like(weights) for weights in other.get_weights()])
            tf.train.Checkpoint(model=other).restore(path).expect_partial()
            np.testing.assert_array_equal(other(x), expected)

            path = os.path.join(folder, "exported")
            model.export(path, verbose=False)
            served = tf.saved_model.load(path)
            np.testing.assert_allclose(served.serve(x), expected, rtol=1e-5)

            path = os.path.join(folder, "module")
            tf.saved_model.save(module, path)
            loaded = tf.saved_model.load(path)
            np.testing.assert_array_equal(loaded.answer(words), answers)
    _meet("each way")
    return written.count, _hidden(folder)


def _vocabulary(folder):
    path = os.path.join(folder, f"words-{bps.rank()}", "words.txt")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    pathlib.Path(path).write_text("a\nb\nc\n")
    return path


def _version(path):
    """Which of several files of one name is there."""
    found = pathlib.Path(path).stat()
    return f"{found.st_ino} {found.st_mtime_ns}"


def one_copy_of_keras_files(folder):
    """How often the file of each name was written, seen by when it was written."""
    model = _trained()
    trained, seen = model.get_weights(), {}
    for name in ("model.keras", "model.h5", "all.weights.h5"):
        path = pathlib.Path(folder) / name
        save = model.save_weights if ".weights." in name else model.save
        save(path)
        mine = _version(path)
        seen[name] = bps.allgather_object(mine, name=f"{name} saved")
        model.load_weights(path)
        # Other values are written.
        model.set_weights([weights + 1 + bps.rank() for weights in model.get_weights()])
        save(path)
        versions = bps.allgather_object(_version(path), name=f"{name} saved again")
        assert _version(path) in versions and not set(versions) & set(seen[name]), versions
        model.set_weights(trained)
    return seen, _hidden(folder)


def different_values(folder, repeats):
    """Each worker writes values of its own; what is read is always whole."""
    variable = tf.Variable(tf.zeros([100_000]))
    checkpoint = tf.train.Checkpoint(variable=variable)
    path = os.path.join(folder, "own")
    for number in range(repeats):
        variable.assign(tf.fill([100_000], float(1 + bps.rank() + 10 * number)))
        checkpoint.write(path)
        checkpoint.read(path)
        assert len(set(variable.numpy().tolist())) == 1
    _meet("different values")
    return _hidden(folder)


def taken_together(folder):
    """A variable that is read by all workers together, in a checkpoint of all."""
    strategy = bps.BytePSStrategy()
    with strategy.scope():
        total = tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    strategy.run(lambda: total.assign_add(1.0 + tf.cast(bps.rank(), tf.float32)))
    checkpoint = tf.train.Checkpoint(total=total)
    path = checkpoint.save(os.path.join(folder, "sum"))
    total.assign(0.0)
    checkpoint.restore(path)
    return float(total.numpy())


def one_worker_saves(folder):
    """Nobody waits for the others, and its deletions count."""
    value = tf.Variable(0.0)
    if bps.rank() == 0:
        manager = tf.train.CheckpointManager(tf.train.Checkpoint(value=value), folder, 1)
        for _ in range(3):
            value.assign_add(1.0)
            manager.save()
    _meet("worker 0 has saved")
    tf.train.Checkpoint(value=value).restore(tf.train.latest_checkpoint(folder))
    return float(value.numpy()), sorted(os.listdir(folder))


# Datasets.


def _numbers(folder, name, before=True, off=False):
    """What a training sees with a cache in a file: the batches of two epochs, and the files."""

    def made():
        keras.utils.set_random_seed(5)
        table = keras.layers.StringLookup(vocabulary=[str(number) for number in range(30)])
        rows = tf.data.Dataset.range(23 if not off else 4 + bps.rank())
        # What is cached is in an order of its own, and goes through Python.
        rows = rows.shuffle(23).map(
            lambda x: tf.ensure_shape(tf.py_function(lambda value: value + 1, [x], tf.int64), [])
        )
        rows = rows.cache(os.path.join(folder, name)).shuffle(23)
        batches = rows.map(lambda x: table(tf.strings.as_string(x))).batch(6)
        if off:
            options = tf.data.Options()
            policy = tf.data.experimental.AutoShardPolicy.OFF
            options.experimental_distribute.auto_shard_policy = policy
            batches = batches.with_options(options)
        return batches

    dataset = made() if before else None
    strategy = bps.BytePSStrategy()
    share = strategy.experimental_distribute_dataset(dataset or made())
    seen = [[batch.numpy().tolist() for batch in share] for _ in range(2)]
    _meet(f"{name} read")
    return seen, sorted(os.listdir(folder))


def cached(folder):
    """A cache by all workers; the same again; and what a killed run has left of it."""
    results = {"first": _numbers(folder, "c"), "again": _numbers(folder, "c", before=False)}
    path = pathlib.Path(folder)
    own = f"d.worker-{bps.rank()}-of-{bps.size()}"
    (path / f"{own}_0.lockfile").write_text("of a killed run")
    (path / f"{own}_0.data-00000-of-00001").write_text("half")
    if bps.rank() == 0:  # it had got to the end
        (path / f"{own}.index").write_text("")
    _meet("left behind")
    results["killed"] = _numbers(folder, "d")
    if bps.size() == 1:
        return results
    results["own"] = _numbers(folder, "e", off=True)
    if bps.rank() == 0:
        complete = tf.data.Dataset.range(23).map(lambda x: x + 1).cache(os.path.join(folder, "f"))
        list(complete)
    _meet("one process has written")
    results["complete"] = _numbers(folder, "f")
    return results


def snapshot(folder):
    """The batches of two epochs, the second of them read; and the folders."""
    strategy = bps.BytePSStrategy()
    keras.utils.set_random_seed(5)
    rows = tf.data.Dataset.range(23).shuffle(23).snapshot(os.path.join(folder, "s"))
    share = strategy.experimental_distribute_dataset(rows.batch(6))
    seen = [[batch.numpy().tolist() for batch in share] for _ in range(2)]
    _meet("snapshot read")
    runs = [runs for made in pathlib.Path(folder).glob("*/*") for runs in made.glob("[0-9]*")]
    return seen, sorted(os.listdir(folder)), len(runs)


def nested_cache(folder):
    """A function of the pipeline caches: there the file is as the program names it."""
    path = os.path.join(folder, "c")
    pathlib.Path(f"{path}_0.lockfile").write_text("of a killed run")
    _meet("left behind nested")
    rows = tf.data.Dataset.range(2).flat_map(lambda _: tf.data.Dataset.range(12).cache(path))
    with bps.BytePSStrategy().scope():
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x = rows.map(lambda x: tf.fill([3], tf.cast(x, tf.float32))).batch(6)
    try:
        model.fit(x.map(lambda x: (x, x[:, :1])), verbose=0)
    except tf.errors.AlreadyExistsError as error:
        return str(error)
    return None


def saved_dataset(folder):
    """`save` by all workers, and `load` at once."""
    path = os.path.join(folder, "rows")
    keras.utils.set_random_seed(5)
    results = []
    for offset in (0, 100):
        dataset = tf.data.Dataset.range(50).map(lambda x, offset=offset: x + offset)
        dataset.save(path)
        loaded = tf.data.Dataset.load(path)
        results.append(sorted(int(x) for x in loaded.as_numpy_iterator()))
        _meet(f"read {offset}")
    runs = [each.name for each in pathlib.Path(path).iterdir() if each.is_dir()]
    return results, len(runs), _hidden(path)


def orbax(folder):
    """Checkpoints of Orbax after epochs, and of the best batches."""
    x = np.random.RandomState(0).normal(size=(24, _WIDTH)).astype("float32")
    with bps.BytePSStrategy().scope():
        model = _model()
        model.compile(keras.optimizers.SGD(0.01), "mse")
    each = keras.callbacks.OrbaxCheckpoint(os.path.join(folder, "each"), max_to_keep=2)
    # Twice within the first epoch fails in one process, too.
    best = keras.callbacks.OrbaxCheckpoint(
        os.path.join(folder, "best"), monitor="loss", mode="min", save_best_only=True, save_freq=3
    )
    model.fit(x, x[:, :1], batch_size=6, epochs=3, callbacks=[each, best], verbose=0)
    _meet("orbax saved")
    # `load_model` of Keras 3.15.1 leaves initial weights, in one process, too.
    loaded = keras.models.clone_model(model)
    loaded.load_weights(os.path.join(folder, "each"))
    for mine, saved in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, saved)
    return float(best.best), sorted(os.listdir(os.path.join(folder, "each")))


def run(folder, name, where=None, **arguments):
    """One of these in a folder of its own, or another's, the same on all workers."""
    path = os.path.join(folder, where or name)
    os.makedirs(path, exist_ok=True)
    bps.BytePSStrategy()  # from now on workers may write to one path
    return json.loads(json.dumps(globals()[name](path, **arguments)))
