"""What test_compression_choice.py runs on each worker."""

import keras
import numpy as np
import tensorflow as tf

import tf_byteps as bps
from tests.codec import sums
from tests.errors import error_of
from tests.ops.compression_programs import digest

LENGTH = 5001
NAMES = ("kernel", "gamma", "bias")
ROUNDS = 2


def choose(variable):
    """Another codec for each, and none for the bias."""
    name = getattr(variable, "path", variable.name)
    return {"kernel": "int8", "gamma": bps.Compression.fp8}.get(name.rsplit("/")[-1].split(":")[0])


def gradients(rank, round_number):
    """Those of a worker's variables, in the order of `NAMES`."""
    values = sums.gradient(rank, round_number, 3 * LENGTH)
    return np.split(values, 3)


def _variables(keras_variables=True):
    zeros = np.zeros(LENGTH, np.float32)
    make = keras.Variable if keras_variables else tf.Variable
    return [make(zeros, name=name) for name in NAMES]


def _mine(round_number):
    return [tf.constant(each) for each in gradients(bps.rank(), round_number)]


def _applied(wrap):
    """What an optimizer subtracts in each round."""
    sgd = bps.DistributedOptimizer(keras.optimizers.SGD(1.0), compression=choose)
    variables = _variables()
    sgd.build(variables)
    apply = wrap(lambda each: sgd.apply(each, variables))
    results = []
    for round_number in range(ROUNDS):
        for variable in variables:
            variable.assign(tf.zeros([LENGTH]))
        apply(_mine(round_number))
        results.append([digest(0 - variable.numpy()) for variable in variables])
    return results


def _taped(wrap, keras_variables):
    variables = _variables(keras_variables)

    def gradient(factors):
        with tf.GradientTape() as tape:
            loss = tf.add_n(
                [
                    tf.reduce_sum(tf.convert_to_tensor(variable) * factor)
                    for variable, factor in zip(variables, factors, strict=True)
                ]
            )
        return bps.DistributedGradientTape(tape, compression=choose).gradient(loss, variables)

    gradient = wrap(gradient)
    return [
        [digest(each + 0.0) for each in gradient(_mine(round_number))]
        for round_number in range(ROUNDS)
    ]


def _ways():
    return {
        "eager": lambda function: function,
        "traced": lambda function: tf.function(function, autograph=False),
        "compiled": lambda function: tf.function(function, autograph=False, jit_compile=True),
    }


def chosen():
    """Each way to reduce gradients: digests by variable."""
    bps.init()
    results = {}
    for how, wrap in _ways().items():
        results[f"optimizer {how}"] = _applied(wrap)
        results[f"tape {how}"] = _taped(wrap, keras_variables=True)
        results[f"tape of tf.Variable {how}"] = _taped(wrap, keras_variables=False)
    bps.shutdown()
    return results


def _apply(compression, wrap=lambda function: function, name="dense/kernel"):
    sgd = bps.DistributedOptimizer(keras.optimizers.SGD(1.0), compression=compression)
    variable = keras.Variable(np.zeros((LENGTH, 2), np.float32), name="v")
    variable._path = name
    sgd.build([variable])
    wrap(lambda: sgd.apply([tf.ones([LENGTH, 2])], [variable]))()


def _tape_of_tensor():
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(x)
    bps.DistributedGradientTape(tape, compression=lambda source: 8).gradient(loss, x)


def _strategy():
    strategy = bps.BytePSStrategy(compression=lambda variable: 3.5)
    with strategy.scope():
        model = keras.Sequential([keras.Input([2]), keras.layers.Dense(3, name="last")])
        model.compile("sgd", "mse")
    model.fit(np.ones((4, 2)), np.ones((4, 3)), batch_size=4, verbose=0)


def refused():
    """What each wrong answer raises, and what workers whose functions differ get."""
    bps.init()
    results = {
        "number": error_of(_apply, lambda variable: 8),
        "name": error_of(_apply, lambda variable: "int9"),
        "option": error_of(_apply, lambda variable: "int4:feedback=2"),
        "function": error_of(_apply, lambda variable: choose),
        "tensor": error_of(_tape_of_tensor),
        "strategy": error_of(_strategy),
        "push_pull": error_of(bps.push_pull, tf.ones([3]), compression=choose),
        "class": error_of(bps.DistributedOptimizer, keras.optimizers.SGD(), compression=dict),
    }
    own = ("int8", None)[bps.rank()]
    for how, wrap in _ways().items():
        name = f"{how}/kernel"
        results[f"disagreement {how}"] = error_of(_apply, lambda variable: own, wrap, name)
    bps.shutdown()
    return results
