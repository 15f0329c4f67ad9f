"""What the workers of test_start_scheduling.py do: steps that XLA compiles."""

import re

import tensorflow as tf

import tf_byteps as bps
from tf_byteps.ops import split
from tf_byteps.ops.reduction import Reduction

_WIDTH = 512
_LAYERS = 3


def start():
    bps.init()
    return bps.rank(), bps.size()


def _gradients(compiled, finish, batch=8):
    """A function that computes gradients, and what `finish` makes of those and the variables."""
    weights = [
        tf.Variable(tf.random.stateless_normal([_WIDTH, _WIDTH], [1, layer]) / 20)
        for layer in range(_LAYERS)
    ]
    biases = [tf.Variable(tf.zeros([_WIDTH])) for _ in range(_LAYERS)]
    x = tf.random.stateless_normal([batch, _WIDTH], [2, bps.rank()])

    @tf.function(jit_compile=compiled)
    def step():
        with tf.GradientTape() as tape:
            y = x
            for layer, weight in enumerate(weights):
                with tf.name_scope(f"layer_{layer}"):
                    y = tf.tanh(y @ weight + biases[layer])
            loss = tf.reduce_mean(y**2)
        return finish(tape, loss, weights + biases)

    return step


def _step(compiled, compression="none", batch=8):
    def finish(tape, loss, variables):
        tape = bps.DistributedGradientTape(tape, compression=compression)
        return tape.gradient(loss, variables)

    return _gradients(compiled, finish, batch)


def _steps_apart(compiled):
    """A function that starts the exchanges, and one that waits for them."""
    started = []

    def finish(tape, loss, variables):
        gradients = tape.gradient(loss, variables)
        started[:] = split.start_reductions(
            gradients,
            [f"apart/{number}" for number in range(len(gradients))],
            [tuple(each.shape) for each in gradients],
            Reduction(bps.Average),
        )
        return loss

    @tf.function(jit_compile=compiled)
    def wait():
        return [each.wait() for each in started]

    return _gradients(compiled, finish), wait


def program():
    """The order in which XLA computes gradients and starts exchanges."""
    return _order_in(_step(compiled=True), '"byteps_start"')


def program_apart():
    """The same where another program waits for the exchanges."""
    return _order_in(_steps_apart(compiled=True)[0], r'"byteps_start_detached".*StartBefore"')


def program_with_norms():
    """The order of what becomes of gradients that are sent in units of shared norms."""
    text = _entry(_step(compiled=True, compression="thc"))
    order = []
    for line in text.splitlines():
        call = re.search(r'custom_call_target="byteps_(start|done)"', line)
        product = _product_of(line)
        if call:
            names = re.search(r'names = "([0-9a-f.]*)"', line)[1].split(".")
            order.append(f"{call[1]} {'+'.join(map(_short_name, names))}")
        elif product:
            order.append(product)
    return order


def _short_name(digits):
    """Of the norms of layer 2: norms 2."""
    name = bytes.fromhex(digits).decode()
    number, norms = re.match(r"gradient/Variable:0#?(\d*)(/norms)?$", name).groups()
    return f"{'norms' if norms else 'gradient'} {number or 0}"


def numbers_with_norms():
    """The gradients of a step that XLA compiles, with shared norms and without. The workers'
    batches differ, and so do their programs."""
    batch = 8 + 5 * bps.rank()
    return [
        [each.numpy() for each in _step(compiled=True, compression=name, batch=batch)()]
        for name in ("thc", "none")
    ]


def _entry(step):
    text = step.experimental_get_compiler_ir()(stage="optimized_hlo")
    return text[text.index("\nENTRY") :]


def _product_of(line):
    """The weights' or the input's gradient that a line of a program computes, or None."""
    found = re.search(r'op_name="gradient_tape/layer_(\d)/matmul/(MatMul_1|MatMul)"', line)
    if not found or found[1] == "0" or " dot(" not in line:
        return None
    return f"gradient of the {'weights' if found[2] == 'MatMul_1' else 'input'} of layer {found[1]}"


def _order_in(step, call):
    """Without the first layer, whose input needs no gradient."""
    order, starts = [], iter(range(_LAYERS - 1, 0, -1))
    for line in _entry(step).splitlines():
        product = _product_of(line)
        if re.search(call, line):
            order += [f"start of layer {number}" for number in [next(starts, 0)] if number]
        elif product:
            order.append(product)
    return order


def numbers():
    """The gradients of a step that XLA compiles, and of one that it does not."""
    return [[each.numpy() for each in _step(compiled)()] for compiled in (True, False)]


def numbers_apart():
    """The same of steps whose exchanges another function waits for; each is done twice."""
    results = []
    for compiled in (True, False):
        step, wait = _steps_apart(compiled)
        for _ in range(2):
            step()
            results.append([each.numpy() for each in wait()])
    return results


def twice_with_norms():
    """The same with shared norms."""
    return twice("thc")


def twice(compression="none"):
    """Gradients of one variable that are exchanged twice in a compiled step, and none needs the
    other; and what they should be."""
    weights = [tf.Variable(tf.random.stateless_normal([_WIDTH, _WIDTH], [1, 0]) / 20)] * 2
    first, second = (tf.Variable(each) for each in weights)

    def gradients(x, order):
        tape = bps.DistributedGradientTape(tf.GradientTape(), compression=compression)
        with tape:
            loss = tf.reduce_mean(tf.tanh(tf.tanh(x @ first) @ second) ** 2)
        return tape.gradient(loss, order)

    @tf.function
    def both(x, y):
        # The lists begin with different variables, so that nothing but their names orders them.
        return gradients(x, [second, first]) + gradients(y, [first, second])

    inputs = [tf.random.stateless_normal([8, _WIDTH], [seed, bps.rank()]) for seed in (3, 4)]
    compiled = tf.function(both.python_function, jit_compile=True)
    return [[each.numpy() for each in step(*inputs)] for step in (compiled, both)]
