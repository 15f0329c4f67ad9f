"""What test_keras_without_a_strategy.py runs on each worker: `tf_byteps.keras` with Keras on JAX.

With no cluster variable the same functions run in one process, on the whole batches and without
anything of tf_byteps.
"""

import contextlib
import os
import signal

import jax
import keras
import numpy as np
from keras_models import data, error_of, facts

import tf_byteps
import tf_byteps.keras as bps
from tf_byteps import _engine

ROWS = 12  # of a batch, over all workers

# The optimizer of each training that is as in one process.
TRAININGS = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "adam": lambda: keras.optimizers.Adam(0.05),
    "global_clipnorm": lambda: keras.optimizers.Adam(0.05, global_clipnorm=0.2),
    "clipnorm": lambda: keras.optimizers.SGD(0.1, momentum=0.9, clipnorm=0.1),
    "accumulation": lambda: keras.optimizers.SGD(
        0.1, momentum=0.9, clipnorm=0.1, gradient_accumulation_steps=3
    ),
    "loss scale": lambda: loss_scale(keras.optimizers.Adam(0.05, global_clipnorm=0.5)),
    # Of these `make test` runs none.
    "clipvalue": lambda: keras.optimizers.SGD(0.1, clipvalue=0.02),
    "moving averages": lambda: keras.optimizers.AdamW(
        0.05, weight_decay=0.1, use_ema=True, ema_overwrite_frequency=3
    ),
    "loss scale, accumulation": lambda: loss_scale(
        keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    ),
    "eagerly": lambda: keras.optimizers.SGD(0.1, clipnorm=0.1),
    "eagerly, accumulation": lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
    "not compiled": lambda: keras.optimizers.SGD(0.1, clipnorm=0.1),
    "steps per execution": lambda: keras.optimizers.SGD(0.1, clipnorm=0.1),
    "predivided": lambda: keras.optimizers.SGD(0.1, clipnorm=0.1),
    "sums": lambda: keras.optimizers.SGD(0.1 / (bps.size() if bps.is_initialized() else 1)),
    "dense": lambda: keras.optimizers.SGD(0.1, clipnorm=0.1),
}
# Further arguments of `compile` and of `DistributedOptimizer`.
COMPILED = {
    "eagerly": {"run_eagerly": True},
    "eagerly, accumulation": {"run_eagerly": True},
    "not compiled": {"jit_compile": False},
    "steps per execution": {"steps_per_execution": 2},
}
DISTRIBUTED = {
    "predivided": {"gradient_predivide_factor": 4.0, "name": "scope"},
    "sums": {"op": bps.Sum},
    "dense": {"sparse_as_dense": True, "num_groups": 2, "compression": lambda variable: None},
}


def loss_scale(inner):
    return keras.optimizers.LossScaleOptimizer(inner, initial_scale=1e20)


def own_rows(array):
    """This worker's rows of every batch."""
    size = bps.size() if bps.is_initialized() else 1
    rank = bps.rank() if bps.is_initialized() else 0
    return array.reshape(-1, size, ROWS // size, *array.shape[1:])[:, rank].reshape(
        -1, *array.shape[1:]
    )


def model_of(optimizer, **options):
    """Made alike in one process and on worker 0; other workers begin with other weights."""
    keras.utils.set_random_seed(7 + (bps.rank() if bps.is_initialized() else 0))
    model = keras.Sequential(
        [keras.layers.Dense(8, "relu", kernel_regularizer="l2"), keras.layers.Dense(3, "softmax")]
    )
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"], **options)
    return model


def distributed(optimizer, **arguments):
    return bps.DistributedOptimizer(optimizer, **arguments) if bps.is_initialized() else optimizer


def callbacks():
    if not bps.is_initialized():
        return []
    return [
        bps.callbacks.BroadcastGlobalVariablesCallback(0),
        bps.callbacks.MetricAverageCallback(),
    ]


def fitted(model, x, y, epochs=2, others=()):
    x, y = own_rows(x), own_rows(y)
    before = x.copy(), y.copy()
    size = bps.size() if bps.is_initialized() else 1
    history = model.fit(
        x,
        y,
        batch_size=ROWS // size,
        epochs=epochs,
        shuffle=False,
        callbacks=[*callbacks(), *others],
        verbose=0,
    )
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(y, before[1])
    return facts(
        model, history, optimizer=[np.asarray(variable) for variable in model.optimizer.variables]
    )


def begin():
    """Without a cluster variable, tf_byteps is not started."""
    if "TF_CONFIG" in os.environ:
        bps.init()


def training(name):
    """A step in which the rows of one worker overflow is skipped by all, with a loss scale."""
    begin()
    optimizer = distributed(TRAININGS[name](), **DISTRIBUTED.get(name, {}))
    x, y = data(5 * ROWS)
    if "loss scale" in name:
        x[3] = 1e300
    found = fitted(model_of(optimizer, **COMPILED.get(name, {})), x, y)
    if name == "sums":
        del found["optimizer"]  # which has the learning rate
    return found


def values():
    begin()
    rank = bps.rank()
    array = np.array([1.0, 2.0]) * (1 + rank)
    found = {
        "average": bps.push_pull(array),
        "sum": bps.allreduce(array, name="a", average=False),
        "largest": bps.push_pull(3.0 + rank, name="b", op="max"),
        "halved": bps.push_pull(array, name="h", op=bps.Sum, postscale_factor=0.5),
        "float16": bps.push_pull(array, name="f", compression=bps.Compression.fp16),
        "integers": bps.push_pull(np.array([2**40 + rank]), name="i", op="sum"),
        "broadcast": bps.broadcast(array, 1, name="c"),
        "boolean": bps.broadcast(np.array([rank == 1]), 1, name="d"),
        "gathered": bps.allgather(array[: rank + 1], name="e"),
        "scattered": bps.reducescatter(np.arange(3.0), name="g", op=bps.Sum),
        "object": bps.broadcast_object({"rank": rank, "array": array}, root_rank=1),
        "objects": bps.allgather_object(rank),
    }
    assert array.tolist() == [1.0 + rank, 2.0 + 2 * rank]
    variables = [keras.Variable(array), keras.Variable(np.int32(rank), dtype="int32")]
    bps.broadcast_variables(variables, root_rank=1)
    found["variables"] = [np.asarray(variable) for variable in variables]
    return found


def errors():
    begin()
    rank = bps.rank()
    sgd = keras.optimizers.SGD
    callback = bps.callbacks.MetricAverageCallback()
    different = {"loss": 1.0} if rank == 0 else {"loss": 1.0, "val_loss": 2.0}
    unlike = keras.Variable(np.zeros([2 + rank]), name="unlike")
    x, y = data(2 * ROWS)
    return {
        "twice": error_of(bps.DistributedOptimizer, bps.DistributedOptimizer(sgd())),
        "no optimizer": error_of(bps.DistributedOptimizer, "sgd"),
        "op": error_of(bps.DistributedOptimizer, sgd(), op="max"),
        "rows": error_of(bps.DistributedOptimizer, sgd(), merge_repeated_rows=False),
        "set": error_of(bps.DistributedOptimizer, sgd(), process_set=1),
        "two steps": error_of(
            fitted, model_of(bps.DistributedOptimizer(sgd(), compression="powersgd")), x, y
        ),
        "layers": error_of(lambda: bps.layers.DistributedEmbedding),
        "optimizers": error_of(lambda: bps.optimizers.Adagrad(0.1)),
        "outer": error_of(lambda: bps.callbacks.OuterSyncCallback(None)),
        "global": error_of(bps.broadcast_global_variables, 0),
        "array": error_of(bps.broadcast_variables, [np.ones(2)], 0),
        "root": error_of(bps.broadcast_variables, [], 7),
        "unlike": error_of(bps.broadcast_variables, [unlike], 0),
        "scalar": error_of(bps.allgather, 1.0, name="scalar"),
        "text": error_of(bps.broadcast, np.array(["a"]), 0, name="text"),
        "logs": error_of(callback.on_epoch_end, 1, different),
        "other weights": error_of(model_of(bps.DistributedOptimizer(sgd())).fit, x, y, verbose=0),
        "one batch": error_of(built(bps.DistributedOptimizer(sgd())).train_on_batch, x, y),
    }


def built(optimizer):
    model = model_of(optimizer)
    model.build([None, 6])
    return model


def learning_rates():
    """Warm-up to the full rate; the momentum is corrected when the rate changes."""
    begin()
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    optimizer = bps.DistributedOptimizer(keras.optimizers.SGD(0.8, momentum=0.9))
    model.compile(optimizer, "mse")
    rates = []

    class Recorder(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.jax_state_sync()
            rates.append(float(self.model.optimizer.learning_rate))

    warmup = bps.callbacks.LearningRateWarmupCallback(warmup_epochs=2, verbose=1)
    schedule = bps.callbacks.LearningRateScheduleCallback(
        lambda epoch: 0.1, start_epoch=2, initial_lr=0.8
    )
    x = np.zeros([4, 1])
    every = [bps.callbacks.BroadcastGlobalVariablesCallback(0), warmup, schedule, Recorder()]
    history = model.fit(x, x, batch_size=2, epochs=3, verbose=0, callbacks=every)
    velocity = optimizer.momentums[0]
    velocity.assign([[2.0]])
    schedule.initial_lr = 0.4
    schedule._set_rate(2)
    return [rates, history.history["lr"], float(velocity.numpy()[0, 0])]


def by_hand():
    """Local variables, a variable that is overwritten, and who pushes what."""
    begin()
    one = 1.0 + 2 * bps.rank()
    shared, own, scale = (keras.Variable([1.0], name=name) for name in ("shared", "own", "scale"))
    scale.overwrite_with_gradient = True
    optimizer = bps.DistributedOptimizer(keras.optimizers.SGD(1.0))
    optimizer.register_local_var(own)
    gradient = keras.ops.convert_to_tensor([one])
    optimizer.apply([gradient, gradient, gradient], [shared, own, scale])
    found = [float(each.value[0]) for each in (shared, own, scale)]

    large = keras.Variable(np.zeros([50_000]), name="large")
    accumulating = bps.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=4)
    accumulating.build([large])
    state = [[each.value for each in accumulating.variables], [large.value]]
    step = jax.jit(
        lambda variables, gradient, weights: accumulating.stateless_apply(
            variables, [gradient], weights
        )
    )
    pushed = []
    for _ in range(8):
        before = _engine.worker_counters()["pushed_bytes"]
        state[1], state[0] = step(state[0], jax.numpy.full([50_000], one), state[1])
        jax.block_until_ready(state)
        pushed.append(_engine.worker_counters()["pushed_bytes"] - before)
    assert float(gradient[0]) == one
    return {"variables": found, "pushed": pushed, "weight": float(state[1][0][0])}


def mixed_precision():
    """Keras puts a loss scale around the optimizer. All workers skip the same steps."""
    begin()
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        x, y = data(5 * ROWS)
        if bps.rank() == 1:
            x[:ROWS] *= 1e36  # which overflow on this worker alone
        model = model_of(bps.DistributedOptimizer(keras.optimizers.Adam(0.01)))
        scale = model.optimizer
        found = fitted(model, x, y)
        kinds = [type(scale).__name__, hasattr(scale, "byteps_reduction")]
        return {**found, "kinds": kinds, "scale": float(scale.dynamic_scale)}
    finally:
        keras.mixed_precision.set_global_policy("float64")


def saved(folder):
    """A model that is saved opens in plain Keras, and trains on with all workers."""
    begin()
    x, y = data(5 * ROWS)
    optimizer = bps.DistributedOptimizer(keras.optimizers.Adam(0.05, clipnorm=1.0))
    model = model_of(optimizer)
    fitted(model, x, y)
    path = os.path.join(folder, f"of {bps.rank()}.keras")
    model.save(path)
    plain = keras.models.load_model(path)
    loaded = bps.load_model(path)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    return {
        "plain": [hasattr(each, "byteps_reduction") for each in (plain.optimizer, again)],
        "clipnorm": again.clipnorm,
        "steps": int(loaded.optimizer.iterations),
        "loaded": fitted(loaded, x, y)["weights"],
        "gone on": fitted(model, x, y)["weights"],
    }


def compressed():
    begin()
    x, y = data(5 * ROWS)
    choose = lambda variable: "int8" if "kernel" in variable.path else "fp16"  # noqa: E731
    return fitted(model_of(distributed(keras.optimizers.SGD(0.1), compression=choose)), x, y)


def with_the_strategy():
    """A distributed optimizer in the strategy's scope reduces once, not twice."""
    begin()

    def train(wrap, made_in=contextlib.nullcontext, trained_in=contextlib.nullcontext):
        keras.utils.set_random_seed(2 + bps.rank())
        with made_in():
            model = keras.Sequential([keras.Input([6]), keras.layers.Dense(3, "softmax")])
            model.compile(
                wrap(keras.optimizers.SGD(0.1, clipnorm=0.1)), "sparse_categorical_crossentropy"
            )
        x, y = data(2 * ROWS)
        with trained_in():
            model.fit(x, y, batch_size=ROWS, shuffle=False, verbose=0)
        return facts(model)["weights"]

    scope = tf_byteps.BytePSStrategy().scope
    dense = lambda optimizer: bps.DistributedOptimizer(optimizer, sparse_as_dense=True)  # noqa: E731
    return {
        "plain": train(lambda optimizer: optimizer, made_in=scope),
        "distributed": train(bps.DistributedOptimizer, made_in=scope),
        "trained": train(bps.DistributedOptimizer, trained_in=scope),
        "refused": error_of(train, dense, scope),
    }


def left():
    """A worker leaves a training by an exception, and all train again."""
    begin()
    x, y = data(5 * ROWS)
    model = model_of(bps.DistributedOptimizer(keras.optimizers.SGD(0.1)))

    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2 and bps.rank() == 1:
                raise OSError("the disk is full")

    error = error_of(fitted, model, x, y, others=[Fails()])
    return {"error": error, **fitted(model, x, y)}


def told_to_end():
    """SIGTERM comes to one worker: all end after the same step."""
    begin()
    x, y = data(5 * ROWS)
    model = model_of(bps.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    leaves = bps.callbacks.LeaveOnSignal(exit_process=False)
    batches = []

    class Told(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            batches.append(batch)
            if batch == 1 and bps.rank() == 1:
                os.kill(os.getpid(), signal.SIGTERM)

    return {**fitted(model, x, y, others=[Told(), leaves]), "end": [leaves.signal, batches]}


def asynchronous():
    """In one process, with BYTEPS_ENABLE_ASYNC."""
    bps.init()
    x, y = data(ROWS)
    model = model_of(bps.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    return error_of(model.fit, x, y, verbose=0)
