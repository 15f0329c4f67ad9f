"""What the workers of test_quorum.py do."""

import contextlib
import logging
import os
import time

import keras
import numpy as np
import tensorflow as tf

import tf_byteps
from tests.cluster import wait_until
from tf_byteps import step_counters
from tf_byteps.local_steps import quorum


class Recorded:
    """The rounds of this worker: who was in, what it brought, and the global weights after."""

    def __init__(self):
        self.tables, self.brought, self.weights = [], [], []
        self.fragments, self.names = [], []
        meet, end = quorum.QuorumFragment.meet, quorum.QuorumFragment.end

        def recorded_meet(fragment, makes_no_more_steps):
            rows = int(fragment._rows) - fragment._seen_rows
            moved = [
                np.array(g) - v.numpy()
                for g, v in zip(fragment._global, fragment._variables, strict=True)
            ]
            attendance = meet(fragment, makes_no_more_steps)
            self.tables.append(attendance.table.tolist())
            self.brought.append((rows, moved))
            self.fragments.append(fragment._number)
            self.names.append(fragment._names[0])
            return attendance

        def recorded_end(fragment, own_share):
            result = end(fragment, own_share)
            self.weights.append([np.array(g) for g in fragment._global])
            return result

        quorum.QuorumFragment.meet = recorded_meet
        quorum.QuorumFragment.end = recorded_end
        self._restore = lambda: (
            setattr(quorum.QuorumFragment, "meet", meet),
            setattr(quorum.QuorumFragment, "end", end),
        )

    def totals(self):
        """What rounds' rows times their averages add up to, and rows times changes of this worker.

        By fragment, each as one number: of the first weight's first element.
        """
        rounds, brought = {}, {}
        before = {}
        for fragment, table, (rows, moved), after in zip(
            self.names, self.tables, self.brought, self.weights, strict=True
        ):
            change = before.get(fragment, 0.0) - after[0].flat[0]
            before[fragment] = after[0].flat[0]
            rounds[fragment] = rounds.get(fragment, 0.0) + sum(table[1]) * change
            brought[fragment] = brought.get(fragment, 0.0) + rows * moved[0].flat[0]
        return [rounds[f] for f in sorted(rounds)], [brought[f] for f in sorted(brought)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._restore()


def _note(folder, what):
    with open(os.path.join(folder, what), "w"):
        pass


def _await(folder, *files):
    wait_until(lambda: all(os.path.exists(os.path.join(folder, file)) for file in files), 300)


def late_is_added(folder):
    """Worker 2 comes to the first round when it has ended."""
    tf_byteps.init()
    rank = tf_byteps.rank()
    weight = tf.Variable(np.zeros(5), name="weight")
    before = step_counters.read()["late_changes"]
    with Recorded() as recorded:
        outer = tf_byteps.OuterSync([weight], 1, quorum=2, grace=0)
        if rank == 2:
            _await(folder, "0", "1")
        for step in range(3):
            weight.assign_add(np.full(5, 2.0 ** (3 * rank + step)))
            outer.step(rows=rank + 1)
            _note(folder, str(rank))
        outer.finish()
    late = step_counters.read()["late_changes"] - before
    return recorded.tables, recorded.brought, recorded.weights, weight.numpy().tolist(), late


def late_to_an_empty_round(folder):
    """Workers 0 and 1 finish, and worker 2 comes with a step when they have met without one.

    Returns:
        The tables of this worker, what its rounds and what it has brought add up to, and the
        weights.
    """
    tf_byteps.init()
    rank = tf_byteps.rank()
    weight = tf.Variable(np.zeros(5), name="empty/weight")

    def step():
        weight.assign_add(np.full(5, 1.0 + rank))
        outer.step()

    with Recorded() as recorded:
        meet = quorum.QuorumFragment.meet

        def noted_meet(fragment, makes_no_more_steps):
            attendance = meet(fragment, makes_no_more_steps)
            if len(recorded.tables) == 2:
                _note(folder, f"{rank} has met twice")
            return attendance

        quorum.QuorumFragment.meet = noted_meet
        outer = tf_byteps.OuterSync([weight], 1, quorum=2, grace=2)
        step()
        if rank == 2:
            _await(folder, "0 has met twice", "1 has met twice")
            step()
        outer.finish()
    return recorded.tables, *recorded.totals(), weight.numpy().tolist()


class _Pace:
    """Lets worker 2 take four times as long for a step as it would, on any machine."""

    def begin(self):
        self._begun = time.monotonic()

    def end(self):
        if tf_byteps.rank() == 2:
            time.sleep(min(3 * (time.monotonic() - self._begun), 0.5))


def slow(steps, local_steps, settings):
    """Worker 2 takes four times as long for a step. All stop when a quorum waits for them."""
    tf_byteps.init()
    weight = tf.Variable(np.zeros(100), name="slow/weight")
    pace = _Pace()
    with Recorded() as recorded:
        outer = tf_byteps.OuterSync([weight], local_steps, quorum=2, **settings)
        made = 0
        while made < steps and not outer.others_wait:
            pace.begin()
            time.sleep(0.01)
            weight.assign_add(np.ones(100))
            pace.end()
            outer.step()
            made += 1
        outer.finish()
    return made, recorded.tables, weight.numpy().tolist(), outer.rounds


def unequal(fragments):
    """Each worker makes its own number of steps, whoever waits; twice."""
    tf_byteps.init()
    weights = [tf.Variable(np.zeros(3), name=f"unequal/{index}") for index in range(2)]
    found = []
    with Recorded() as recorded:
        outer = tf_byteps.OuterSync(weights, 4, quorum=1, grace=0, fragments=fragments)
        for steps in ((1, 9, 30), (20, 1, 1)):
            for step in range(steps[tf_byteps.rank()]):
                for weight in weights:
                    weight.assign_add(np.full(3, 1.0 + step % 2))
                outer.step(rows=2)
            outer.finish()
            found.append([weight.numpy().tolist() for weight in weights])
    return found, *recorded.totals(), recorded.fragments, recorded.tables


def fits(settings):
    """`fit`, with one worker that is slower."""
    keras.utils.set_random_seed(3)
    strategy = tf_byteps.BytePSStrategy(local_steps=4, **settings)
    x = np.random.default_rng(1).normal(size=(180, 6)).astype("float32")
    y = np.sin(x.sum(axis=1, keepdims=True))
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(8, activation="tanh"),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(keras.optimizers.Adam(0.02), "mse")
    slow = _Slow()
    with warnings_of(logging.getLogger("tf_byteps")) as warned:
        history = model.fit(x, y, batch_size=6, epochs=2, verbose=0, callbacks=[slow])
    weights = np.concatenate([np.ravel(each) for each in model.get_weights()])
    return weights.tobytes(), history.history["loss"], slow.steps, warned


@contextlib.contextmanager
def warnings_of(logger):
    """What it says meanwhile."""
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)


def _model(settings):
    keras.utils.set_random_seed(3)
    strategy = tf_byteps.BytePSStrategy(local_steps=4, **settings)
    with strategy.scope():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


def _rows(count=120):
    x = np.random.default_rng(1).normal(size=(count, 6)).astype("float32")
    return x, np.sin(x.sum(axis=1, keepdims=True))


class _Slow(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self._pace, self.steps = _Pace(), 0

    def on_train_batch_begin(self, batch, logs=None):
        self._pace.begin()

    def on_train_batch_end(self, batch, logs=None):
        self.steps = int(self.model.optimizer.iterations)
        self._pace.end()


def sees(folder):
    """What callbacks after batches and epochs, evaluations and files see."""
    model = _model({"quorum": 2})
    after_saves, after_epochs = [], []

    class See(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch % 7 == 6 and not after_epochs:  # the second epoch begins within seven batches
                after_saves.append(model.get_weights()[0].tobytes())

        def on_epoch_end(self, epoch, logs=None):
            after_epochs.append(model.get_weights()[0].tobytes())

    path = os.path.join(folder, "{epoch}-{batch}.weights.h5")
    saves = keras.callbacks.ModelCheckpoint(path, save_freq=7, save_weights_only=True)
    history = model.fit(
        *_rows(),
        batch_size=6,
        epochs=2,
        verbose=0,
        validation_data=_rows(30),
        callbacks=[_Slow(), saves, See()],
    )
    evaluated = model.evaluate(*_rows(30), verbose=0)
    read = []
    for name in ("1-7", "1-14", "2-1"):
        model.load_weights(os.path.join(folder, f"{name}.weights.h5"))
        read.append(model.get_weights()[0].tobytes())
    return after_saves, after_epochs, history.history["val_loss"], evaluated, read


def goes_on(folder, steps, first=0):
    """Steps from a checkpoint on, which is within a round of three steps; weights and momentum."""
    tf_byteps.init()
    weight = tf.Variable(np.ones(20), name="going/weight")
    outer = tf_byteps.OuterSync([weight], 3, "diloco", quorum=tf_byteps.size())
    checkpoint = tf.train.Checkpoint(weight=weight, outer=outer)
    path = os.path.join(folder, f"{first}")
    if first:
        checkpoint.read(path)
        outer.finish()  # rounds begin with the restored weights
    for step in range(first, first + steps):
        weight.assign_add(np.full(20, 0.5 ** (tf_byteps.rank() + step)))
        outer.step()
        if step + 1 == 4:
            outer.finish()
            if tf_byteps.rank() == 0:
                checkpoint.write(os.path.join(folder, "4"))
    outer.finish()
    return weight.numpy().tolist(), [each.numpy().tolist() for each in outer._rounds.state.momenta]


def equals_all():
    """The weights after a training with a quorum of all, and after one without a quorum."""
    tf_byteps.init()
    found = []
    for settings in ({}, {"quorum": tf_byteps.size()}):
        weight = tf.Variable(np.full(1000, 1.0), name="all/weight", dtype=tf.float32)
        outer = tf_byteps.OuterSync([weight], 3, "diloco", **settings)
        random = np.random.default_rng(tf_byteps.rank())
        for _ in range(11):
            weight.assign_add(random.normal(size=1000).astype("float32"))
            outer.step(rows=tf_byteps.rank() + 1)
        outer.finish()
        found.append(weight.numpy().tobytes())
    return found


def own_data(batches):
    """`fit` on data of which each worker has its own number of batches; a dataset that waits."""
    model = _model({"quorum": 2})
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    data = tf.data.Dataset.from_tensor_slices(_rows(6 * max(batches))).batch(6)
    data = data.take(batches[tf_byteps.rank()]).with_options(options)
    slow = _Slow()
    model.fit(data, epochs=2, verbose=0, callbacks=[slow], validation_data=data)
    steps, said = int(model.optimizer.iterations), "nothing"
    try:
        model.fit(model.distribute_strategy.experimental_distribute_dataset(data), verbose=0)
    except ValueError as error:
        said = str(error)
    return steps, model.get_weights()[0].tobytes(), said


def refusals():
    """What is said of bad input."""
    tf_byteps.init()
    weight = tf.Variable(np.zeros(3), name="refused")
    said = []
    for make in (
        lambda: tf_byteps.OuterSync([weight], 4, quorum=9),
        lambda: tf_byteps.OuterSync([weight], 4, grace=1.0),
        lambda: tf_byteps.OuterSync([weight], 4, quorum=2, compression="powersgd"),
        lambda: tf_byteps.BytePSStrategy(local_steps=4, quorum=9),
        lambda: tf_byteps.BytePSStrategy(quorum=2),
        lambda: tf_byteps.BytePSStrategy(quorum=2, staleness=3),
        lambda: tf_byteps.BytePSStrategy(local_steps=4, quorum=2, staleness=3),
    ):
        try:
            make()
            said.append("nothing")
        except ValueError as error:
            said.append(str(error))
    first, second = (tf_byteps.OuterSync([weight], 4, quorum=2) for _ in range(2))
    first.step()
    try:
        second.step()
    except RuntimeError as error:
        said.append(str(error))
    first.finish()
    second.step()
    second.finish()
    first.step()
    del first  # as an error does
    second.step()
    second.finish()
    return said
