"""What test_start_scheduling.py has a process do with jaxprs. There is no job: nothing runs them
but an interpreter that leaves exchanges out."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from tf_byteps.jax.exchanges import Exchanges
from tf_byteps.jax.primitive import exchange, exchanges_of
from tf_byteps.strategy.jax import start_scheduling

_START = "byteps_start_before"
_SIDE = 512


def start():
    return None


def _matrix(seed, shape=(_SIDE, _SIDE)):
    return jax.random.normal(jax.random.key(seed), shape) / 20


def _exchanged(gradients, names=None, is_derived=False):
    count = len(gradients)
    names = names or [f"gradient {number}" for number in range(count)]
    described = Exchanges(tuple(names), is_derived, "sum", ("",) * count, (0,) * count)
    return exchange(gradients, described, 2)


def _run(program, arguments):
    """The program's results without its exchanges."""
    values = dict(zip(program.jaxpr.constvars, program.consts))
    values.update(zip(program.jaxpr.invars, arguments))
    for equation in program.jaxpr.eqns:
        operands = [x.val if isinstance(x, core.Literal) else values[x] for x in equation.invars]
        if equation.primitive.name == _START or exchanges_of(equation):
            results = operands
        else:
            parameters = equation.primitive.get_bind_params(equation.params)
            results = equation.primitive.bind(*operands, **parameters)
        if not equation.primitive.multiple_results:
            results = [results]
        values.update(zip(equation.outvars, results))
    return [x.val if isinstance(x, core.Literal) else values[x] for x in program.jaxpr.outvars]


def _starts_before(program):
    """Of each gradient in the order of the exchange, the numbers of those whose exchanges have
    started when it is computed."""
    made_by = {out: each for each in program.jaxpr.eqns for out in each.outvars}
    (end,) = [each for each in program.jaxpr.eqns if exchanges_of(each)]
    before = []
    for atom in end.invars:
        maker = made_by.get(atom)
        left, seen, found = [atom], set(), set()
        if maker is not None and maker.primitive.name == _START:
            left = [maker.invars[maker.outvars.index(atom)]]
        while left:
            each = made_by.get(left.pop())
            if each is None or id(each) in seen:
                continue
            seen.add(id(each))
            if each.primitive.name == _START:
                found.update(int(name.split()[-1]) for name in each.params["exchanges"].names)
            left += [x for x in each.invars if not isinstance(x, core.Literal)]
        before.append(sorted(found))
    return before


def _facts(step, *arguments):
    """What starts early, in its order, and before which gradients; None: nothing."""
    program = jax.make_jaxpr(step)(*arguments)
    ordered = start_scheduling.ordered(program)
    if ordered is None:
        return None
    for one, other in zip(_run(ordered, arguments), _run(program, arguments), strict=True):
        np.testing.assert_array_equal(one, other)
    starts = [
        [int(name.split()[-1]) for name in each.params["exchanges"].names]
        for each in ordered.jaxpr.eqns
        if each.primitive.name == _START
    ]
    return {"starts": starts, "before": _starts_before(ordered)}


def _of_loss(loss, *weights, change=list, **options):
    def step(*weights):
        gradients = jax.grad(loss, argnums=range(len(weights)))(*weights)
        return _exchanged(change(gradients), **options)

    return _facts(step, *weights)


def _two_layers(a, b):
    return jnp.sum(jax.nn.relu(_matrix(9, (8, _SIDE)) @ a) @ b)


def dense_layers():
    return _of_loss(_two_layers, _matrix(1), _matrix(2))


def casts():
    """Products in 16 bits, weights in 32."""

    def loss(a, b):
        x = _matrix(9, (8, _SIDE)).astype(jnp.bfloat16)
        y = jax.nn.relu(x @ a.astype(x.dtype)) @ b.astype(x.dtype)
        return jnp.sum(y.astype(jnp.float32))

    return _of_loss(loss, _matrix(1), _matrix(2))


def convolutions():
    def loss(*kernels):
        y = _matrix(9, (2, 6, 6, 176))
        for kernel in kernels:
            layout = ("NHWC", "HWIO", "NHWC")
            y = jax.lax.conv_general_dilated(y, kernel, (1, 1), "SAME", dimension_numbers=layout)
            y = jax.nn.relu(y)
        return jnp.sum(y)

    return _of_loss(loss, *(_matrix(i, (3, 3, 176, 176)) for i in (1, 2)))


def batches_of_matrices():
    def loss(a, b):
        x = _matrix(9, (4, 8, _SIDE))
        return jnp.sum(jnp.einsum("bij,jk->bik", jnp.tanh(x @ a), b))

    return _of_loss(loss, _matrix(1), _matrix(2))


def one_output_gradient():
    """Of two layers."""

    def loss(a, b, c):
        y = jnp.tanh(_matrix(9, (8, _SIDE)) @ a)
        return jnp.sum(jnp.tanh(y @ b + y @ c))

    return _of_loss(loss, *(_matrix(i) for i in (1, 2, 3)))


def _with_biases(a, of_a, b, of_b, c, of_c):
    y = jnp.tanh(_matrix(9, (8, _SIDE)) @ a + of_a)
    y = jnp.tanh(y @ b + of_b)
    return jnp.sum(jnp.tanh(y @ c + of_c))


def biases():
    pairs = [(_matrix(i), jnp.zeros(_SIDE)) for i in (1, 2, 3)]
    return _of_loss(_with_biases, *(each for pair in pairs for each in pair))


def another_order():
    """Biases would come before what they are computed from."""

    def loss(of_a, of_b, of_c, c, b, a):
        return _with_biases(a, of_a, b, of_b, c, of_c)

    return _of_loss(loss, *[jnp.zeros(_SIDE)] * 3, *(_matrix(i) for i in (3, 2, 1)))


def shapes():
    """What computes the gradient of the weights reads it in a shape of its own."""

    def loss(a, b):
        y = jnp.tanh(_matrix(9, (8, _SIDE)) @ a).reshape(2, 4, _SIDE)
        y = (y.reshape(8, _SIDE) @ b).reshape(2, 4, _SIDE)
        return jnp.sum(jnp.tanh(y))

    return _of_loss(loss, _matrix(1), _matrix(2))


def layer_used_twice():
    def loss(a, b):
        y = jnp.tanh(jnp.tanh(_matrix(9, (8, _SIDE)) @ a) @ b)
        return jnp.sum(y @ b)

    return _of_loss(loss, _matrix(1), _matrix(2))


def regularizer():
    def loss(a, b):
        return _two_layers(a, b) + 0.1 * jnp.sum(b**2)

    return _of_loss(loss, _matrix(1), _matrix(2))


def scaled():
    """By a number that is known when it runs, and by one."""

    def change(gradients):
        return [gradient * jnp.float32(0.5) / jnp.sum(_matrix(7)) for gradient in gradients]

    return _of_loss(_two_layers, _matrix(1), _matrix(2), change=change)


def clipped():
    """Each is scaled by the norm of all: none is known before backpropagation has ended."""

    def change(gradients):
        norm = jnp.sqrt(sum(jnp.sum(gradient**2) for gradient in gradients))
        return [gradient / norm for gradient in gradients]

    return _of_loss(_two_layers, _matrix(1), _matrix(2), change=change)


def derived_names():
    return _of_loss(_two_layers, _matrix(1), _matrix(2), is_derived=True)


def one_name_twice():
    def step(a, b):
        first = _exchanged(list(jax.grad(_two_layers, (0, 1))(a, b)))
        return _exchanged(first)

    return _facts(step, _matrix(1), _matrix(2))


def small_and_tables():
    def loss(table, kernel, bias):
        return jnp.sum(jnp.tanh(table[jnp.asarray([1, 2, 3])] @ kernel + bias) ** 2)

    return _of_loss(loss, _matrix(1, (4096, 128)), _matrix(2, (128, 64)), jnp.zeros(64))


def gradients_of_gradients():
    def loss(w, a, b):
        x = jnp.tanh(_matrix(9, (8, _SIDE)) @ w)
        return jnp.sum(jax.grad(lambda x: jnp.sum(jnp.tanh(x @ a) @ b))(x) ** 2)

    return _of_loss(loss, *(_matrix(i) for i in (1, 2, 3)))
