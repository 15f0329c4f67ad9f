"""What the workers of test_wait_scheduling.py do: steps whose sums the next one waits for."""

import functools
import re

import tensorflow as tf

import tf_byteps as bps
from tf_byteps.ops import split
from tf_byteps.ops.compiled.wait_scheduling import place_late
from tf_byteps.ops.reduction import Reduction

_WIDTH = 512
_LAYERS = 3
_STEPS = 3


def _training(compiled):
    """A function that only starts exchanges, one that first updates with those of the step before,
    and the weights."""
    weights = [
        tf.Variable(tf.random.stateless_normal([_WIDTH, _WIDTH], [1, layer]) / 20)
        for layer in range(_LAYERS)
    ]
    x = tf.random.stateless_normal([8, _WIDTH], [2, bps.rank()])
    started = []

    def compute():
        with tf.GradientTape() as tape:
            y = x
            for layer, weight in enumerate(weights):
                with tf.name_scope(f"layer_{layer}"):
                    y = tf.tanh(y @ weight)
            loss = tf.reduce_mean(y**2)
        started[:] = split.start_reductions(
            tape.gradient(loss, weights),
            [f"late/{layer}" for layer in range(_LAYERS)],
            [(_WIDTH, _WIDTH)] * _LAYERS,
            Reduction(bps.Average),
        )
        return loss

    def update_first():
        for weight, each in zip(weights, list(started), strict=True):
            weight.assign_sub(each.wait())
        graph = tf.compat.v1.get_default_graph()
        begin = len(graph.get_operations())
        loss = compute()
        if compiled:
            handles = [graph.capture(weight.handle) for weight in weights]
            names = [each.name for each in started]
            assert place_late(dict(zip(names, handles, strict=True)), begin) == _LAYERS - 1
        return loss

    functions = [tf.function(each, jit_compile=compiled) for each in (compute, update_first)]
    return *functions, weights, lambda: split.forget([each.name for each in started])


def order():
    """The order in which XLA waits and computes the forward pass."""
    bps.init()
    first, steady, _, forget = _training(compiled=True)
    first()
    text = steady.experimental_get_compiler_ir()(stage="optimized_hlo")
    forget()
    entry = text[text.index("\nENTRY") :]
    found = []
    for line in entry.splitlines():
        layer = re.search(r'op_name="layer_(\d)/matmul"', line)
        wait = re.search(r'"byteps_wait".* op_name="BytePSWait_?(\d?)"', line)
        if wait:
            found.append(f"wait for layer {wait[1] or 0}")
        elif layer and " dot(" in line:
            found.append(f"layer {layer[1]}")
    return found


def forgotten():
    """Names of exchanges that were forgotten in flight, as the other worker is late, are free.

    Each is given and forgotten twice while nobody answers.

    Returns:
        The sums of the third exchange, not compiled and compiled.
    """
    bps.init()

    def start(name, value):
        split.start_reductions(
            [tf.fill([1000], float(value))], [name], [(1000,)], Reduction(bps.Sum)
        )

    sums = []
    for compiled in (False, True):
        name = f"forgotten/{compiled}"
        functions = [
            tf.function(functools.partial(start, name, value), jit_compile=compiled)
            for value in (1, 10, 100 + bps.rank())
        ]
        if bps.rank() == 1:  # it begins when the other has started all three
            bps.push_pull(tf.zeros([]), name=f"{name}/go").numpy()
        for number, function in enumerate(functions):
            function()
            if number < 2:
                split.forget([name])
        if bps.rank() == 0:
            bps.push_pull(tf.zeros([]), name=f"{name}/go").numpy()
        started = split.StartedReduction(name, tf.float32, (1000,), bps.Sum)
        sums.append(started.wait().numpy().tolist())
    return sums


def numbers():
    """The losses and weights of steps that XLA compiles, and of others."""
    results = []
    for compiled in (True, False):
        first, steady, weights, forget = _training(compiled)
        losses = [first(), *(steady() for _ in range(_STEPS))]
        results.append([each.numpy() for each in [*losses, *weights]])
        forget()
    return results
