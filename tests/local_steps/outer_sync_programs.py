"""What the workers of test_outer_sync.py do."""

import keras
import numpy as np
import tensorflow as tf

import tf_byteps

_SHAPES = ((3,), (2, 2), ())
_LARGE = 2**16  # with fewer bytes than BYTEPS_MIN_COMPRESS_BYTES it would travel as it is
_RATE = {"average": 1.0, "diloco": 0.7}


def _moved(rank, step, index):
    return np.random.default_rng([rank, step, index]).normal(size=_SHAPES[index])


def _rows(rank, step):
    return (rank + step) % 3  # none in some


def _expected(steps, workers, settings):
    """The weights of each worker after all steps, and after the end: the rules, in NumPy."""
    every, fragments = settings["local_steps"], settings.get("fragments", 1)
    delay = settings.get("delay", 0)
    mix = settings.get("mix", 0.5 if delay else 0.0)
    rate = settings.get("outer_learning_rate", _RATE[settings["outer"]])
    momentum = settings.get("outer_momentum", 0.0 if settings["outer"] == "average" else 0.6)
    common = [np.full(shape, 1.0) for shape in _SHAPES]
    own = [[each.copy() for each in common] for _ in range(workers)]
    velocity = [np.zeros(shape) for shape in _SHAPES]
    since = [[0] * workers for _ in _SHAPES]  # rows
    ends = {}  # index -> (step, this round's averages)

    def begin(index):
        total = sum(since[index])
        changes = [
            (common[index] - own[rank][index]) * (since[index][rank] / total if total else 0)
            for rank in range(workers)
        ]
        since[index] = [0] * workers
        return sum(changes)

    def end(index, average, share):
        velocity[index] = momentum * velocity[index] + average
        common[index] = common[index] - rate * (average + momentum * velocity[index])
        for rank in range(workers):
            own[rank][index] = share * own[rank][index] + (1 - share) * common[index]

    for step in range(1, steps + 1):
        for index in range(len(_SHAPES)):
            for rank in range(workers):
                own[rank][index] = own[rank][index] + _moved(rank, step, index)
                since[index][rank] += _rows(rank, step)
        for index in range(len(_SHAPES)):  # each is a fragment, or all are one
            first = every * (index % fragments + 1) // fragments
            if index in ends and ends[index][0] == step:
                end(index, ends.pop(index)[1], mix)
            if step >= first and (step - first) % every == 0:
                average = begin(index)
                if delay:
                    ends[index] = (step + delay, average)
                else:
                    end(index, average, mix)
    before = [[each.copy() for each in weights] for weights in own]
    for index in range(len(_SHAPES)):
        if index in ends:
            end(index, ends[index][1], mix)
        end(index, begin(index), 0.0)
    return before, own


def rounds(steps, settings):
    """How far the weights are from what the rules say: before and after the last round."""
    tf_byteps.init()
    rank, workers = tf_byteps.rank(), tf_byteps.size()
    start = 1.0 if rank == 0 else 5.0  # worker 0's counts
    variables = [
        tf.Variable(np.full(shape, start), name=f"weight_{index}", dtype=tf.float64)
        for index, shape in enumerate(_SHAPES)
    ]
    outer = tf_byteps.OuterSync(variables, **settings)
    for step in range(1, steps + 1):
        for index, variable in enumerate(variables):
            variable.assign_add(_moved(rank, step, index))
        outer.step(_rows(rank, step))
    found, divergence = [variable.numpy() for variable in variables], outer.divergence
    outer.finish()
    ended = [variable.numpy() for variable in variables]
    before, after = _expected(steps, workers, settings)

    def distance(one, other):
        return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))

    return {
        "before": distance(found, before[rank]),
        "after": distance(ended, after[rank]),
        "bits": [each.tobytes() for each in ended],
        "rounds": outer.rounds,
        "divergence": divergence,
    }


def compressed(steps, compression):
    """Rounds with a codec, of a weight large enough for it; returns the error, relatively."""
    tf_byteps.init()
    rank = tf_byteps.rank()
    results = []
    for codec in ("none", compression):
        variable = tf.Variable(
            np.zeros(_LARGE, np.float32), name=f"weight_{codec.partition(':')[0]}"
        )
        outer = tf_byteps.OuterSync([variable], local_steps=4, compression=codec)
        for step in range(steps):
            move = np.random.default_rng([rank, step]).normal(size=_LARGE).astype(np.float32)
            variable.assign_add(move)
            outer.step()
        outer.finish()
        results.append(variable.numpy())
    exact, found = results
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def refusals():
    """What `OuterSync` says to bad input."""
    tf_byteps.init()
    variable = tf.Variable([1.0, 2.0], name="refused")
    said = []
    for arguments in (
        {"variables": [], "local_steps": 4},
        {"variables": [variable], "local_steps": 4, "fragments": 2},
        {"variables": [variable], "local_steps": 4, "compression": "nothing"},
    ):
        try:
            tf_byteps.OuterSync(**arguments)
        except ValueError as error:
            said.append(str(error))
    return said, variable.numpy().tolist()


def _keras_model(**arguments):
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(5, activation="tanh"), keras.layers.BatchNormalization()]
    model = keras.Sequential([keras.Input([6]), *layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", **arguments)
    return model


def _own_rows(steps):
    random = np.random.default_rng([7, tf_byteps.rank()])
    x = random.normal(size=(steps * 4, 6)).astype("float32")
    return x, np.sin(x.sum(axis=1, keepdims=True))


def fits(settings, steps_per_execution):
    """`fit` with the callback and a loop with `OuterSync`: the trainable weights of both, and the
    loss of a validation, and of an evaluation after training.
    """
    tf_byteps.init()
    callback = tf_byteps.keras.callbacks.OuterSyncCallback(**settings)
    model = _keras_model(steps_per_execution=steps_per_execution)
    x, y = _own_rows(10)
    same = np.ones([4, 6], "float32"), np.ones([4, 1], "float32")
    fit = {"batch_size": 4, "shuffle": False, "verbose": 0, "validation_data": same}
    first = model.fit(x, y, callbacks=[callback], epochs=2, **fit).history
    second = model.fit(x, y, callbacks=[callback], epochs=1, **fit).history
    validated = [*first["val_loss"], *second["val_loss"]]
    evaluated = model.evaluate(*same, verbose=0)
    found = np.concatenate([np.ravel(each) for each in model.trainable_variables]).tolist()
    rounds = callback.outer.rounds

    model = _keras_model()
    outer = tf_byteps.OuterSync(model.trainable_variables, **settings)
    for _ in range(3):
        for step in range(10):
            model.train_on_batch(x[4 * step :][:4], y[4 * step :][:4])
            outer.step()
        outer.finish()
    expected = np.concatenate([np.ravel(each) for each in model.trainable_variables]).tolist()
    return found, expected, validated, evaluated, rounds - outer.rounds


def fit_goes_on_after_an_exception():
    """The weights of the next training, and of callbacks where it is refused, what is said."""
    tf_byteps.init()
    model = _keras_model()
    callback = tf_byteps.keras.callbacks.OuterSyncCallback(4, "diloco")
    x, y = _own_rows(6)

    def fail(batch, logs):
        if batch == 2:
            raise KeyError("of the program")

    failing = keras.callbacks.LambdaCallback(on_train_batch_end=fail)
    said = []
    for callbacks in ([callback, failing], [callback]):
        try:
            model.fit(x, y, batch_size=4, verbose=0, callbacks=callbacks)
        except KeyError as error:
            said.append(str(error))
    weights = [each.numpy().tobytes() for each in model.trainable_variables]
    unbuilt = keras.Sequential([keras.layers.Dense(1)])
    unbuilt.compile("sgd", "mse")
    distributed = _keras_model()
    optimizer = tf_byteps.DistributedOptimizer(keras.optimizers.SGD(0.1))
    distributed.compile(optimizer, "mse")
    with tf_byteps.BytePSStrategy().scope():
        in_scope = _keras_model()
    for model in (unbuilt, distributed, in_scope):
        try:
            model.fit(np.ones([4, 6]), np.ones([4, 1]), verbose=0, callbacks=[callback])
        except ValueError as error:
            said.append(str(error))
    return said, weights
