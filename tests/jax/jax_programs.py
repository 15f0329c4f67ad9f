"""What the workers of test_push_pull_in_jax.py do."""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import tf_byteps as bps
from tf_byteps import _engine

DTYPES = ["float32", "float16", "bfloat16", "int8", "uint8", "int32", "float64", "int64"]
COPIED = [*DTYPES, "bool", "int16", "uint16", "uint32", "uint64", "complex64", "complex128"]


def _own(dtype="float32"):
    return np.arange(6).reshape(2, 3).astype(jnp.dtype(dtype)) + np.asarray(
        bps.rank(), jnp.dtype(dtype)
    )


def _plain(value):
    return np.asarray(value).astype(np.complex128).tolist()


def _sum(value, name, **options):
    return bps.jax.push_pull(value, op="sum", name=name, **options)


def _exchanges(function, *arguments):
    """The result, and how many exchanges it took: those that have begun.

    A GPU may have a result before the engine has counted its exchange.
    """
    before = sum(_engine.next_rounds().values())
    result = jax.block_until_ready(function(*arguments))
    return result, sum(_engine.next_rounds().values()) - before


def _message(function, *arguments):
    try:
        jax.block_until_ready(function(*arguments))
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def before_init():
    return _message(lambda: bps.jax.push_pull(jnp.ones(2)))


def start():
    bps.init()
    return sorted({name.split(".")[0] for name in sys.modules} & {"tensorflow", "keras"})


def all_dtypes():
    """The sums, minima and copies of each dtype, in one program."""

    keys = []

    @jax.jit
    def exchange(arrays):
        results = {}
        for dtype, own in arrays.items():
            results[dtype, "broadcast"] = bps.jax.broadcast(own, bps.size() - 1)
            results[dtype, "gather"] = bps.jax.gather(own)
            if dtype in DTYPES:
                is_floating = jnp.issubdtype(own.dtype, jnp.floating)
                fits = dtype != "int8"  # the product of all workers' numbers
                for op in ["sum", "min", "max"] + ["average"] * is_floating + ["product"] * fits:
                    results[dtype, op] = bps.jax.push_pull(own, op=op)
        keys.extend(results)
        return list(results.values())

    with jax.enable_x64(True):
        results = exchange({dtype: jnp.asarray(_own(dtype)) for dtype in COPIED})
    assert [result.dtype.name for result in results] == [dtype for dtype, _ in keys]
    return {key: _plain(result) for key, result in zip(keys, results)}


def shapes():
    """Scalars, empty arrays, lists, what NumPy has, and random keys."""
    scalar = jax.jit(lambda x: _sum(x, "scalar"))(jnp.float32(bps.rank()))
    empty = jax.jit(lambda x: _sum(x, "empty"))(jnp.zeros([0, 4]))
    listed = bps.jax.push_pull([np.ones(2), jnp.ones([3, 1])], op="sum", name="listed")
    nothing = bps.jax.push_pull([], name="nothing")
    key = bps.jax.broadcast(jax.random.key(bps.rank() + 7), 0, name="key")
    same = jax.random.normal(key) == jax.random.normal(jax.random.key(7))
    return float(scalar), empty.shape, [_plain(x) for x in listed], nothing, bool(same)


def options():
    x = jnp.full(100_000, bps.rank() + 1.0)
    results = {}
    for compression in (None, "bf16", "fp16", bps.Compression.int8, "int4:feedback=1"):
        summed = jax.jit(lambda x, c=compression: _sum(x, f"by {c}", compression=c))(x)
        results[str(compression)] = summed.dtype.name, float(jnp.max(summed))
    scaled = _sum(x, "scaled", prescale_factor=0.5, postscale_factor=4.0)
    urgent = bps.jax.push_pull([x, x], op="sum", name="urgent", priority=3)
    return results, float(scaled[0]), float(urgent[1][0]), float(_sum(x, "in", scope="scope")[0])


def gradients():
    """Of the losses of all workers, whose factors differ."""
    weight, x = bps.rank() + 1.0, jnp.asarray([[1.0, 2.0, 3.0]] * 2) * (bps.rank() + 1)
    size = bps.size()

    def summed(x):
        return (_sum(x * x, "squares") * weight).sum()

    def averaged(x):
        return (bps.jax.push_pull(x, name="averaged") * weight).sum()

    def copied(x):
        return (bps.jax.broadcast(x, size - 1, name="copied", gradient="sum") * weight).sum()

    def gathered(x):
        rows = bps.jax.gather(x, name="gathered", gradient="sum")
        return (rows * jnp.arange(1.0, 2 * size + 1)[:, None] * weight).sum()

    functions = [summed, averaged, copied, gathered]
    inside = [_plain(jax.jit(jax.grad(function))(x)) for function in functions]
    outside = [_plain(jax.grad(function)(x)) for function in functions[:1]]
    forward = jax.jvp(lambda x: _sum(x * x, "forward"), (x,), (jnp.ones_like(x),))
    second = jax.jit(jax.grad(lambda x: jax.grad(summed)(x).sum()))(x)
    refused = _message(jax.grad(lambda x: bps.jax.push_pull(x, op="max", name="max").sum()), x)
    return inside, outside, [_plain(each) for each in forward], _plain(second), refused


def transformations():
    x = jnp.asarray([1.0, 2.0]) + bps.rank()

    def looped(x):
        return jax.lax.fori_loop(0, 3, lambda _, x: bps.jax.push_pull(x, name="looped") + 1, x)

    def scanned(x):
        step = lambda carry, factor: (_sum(carry, "scanned") * factor, carry)  # noqa: E731
        return jax.lax.scan(step, x, jnp.asarray([1.0, 0.5]))[0]

    def chosen(x, taken):
        return jax.lax.cond(taken, lambda x: _sum(x, "chosen"), lambda x: -_sum(x, "chosen"), x)

    def computed_again(x):
        return jax.grad(jax.checkpoint(lambda x: (_sum(x, "again") ** 2).sum()))(x)

    batch = jnp.stack([x, 10 * x, 100 * x])
    results = {
        "used afterwards": jax.jit(lambda x: _sum(x, "used") + x)(x),
        "donated": jax.jit(lambda x: _sum(x, "donated"), donate_argnums=0)(x + 0),
        "fori_loop": jax.jit(looped)(x),
        "scan": jax.jit(scanned)(x),
        # Each worker may take another branch.
        "cond": jax.jit(chosen)(x, bps.rank() == 0),
        "checkpoint": jax.jit(computed_again)(x),
        "vmap": jax.vmap(lambda x: _sum(x, "mapped"))(batch),
        "vmap in jit": jax.jit(jax.vmap(lambda x: _sum(x, "mapped inside"), 1, 1))(batch),
        "vmap of gather": jax.jit(jax.vmap(lambda x: bps.jax.gather(x, name="rows")))(batch),
        "runs in flight": sum(jax.jit(lambda x: _sum(x, "run"))(x * i) for i in range(8)),
    }
    return {name: _plain(result) for name, result in results.items()}


def failures_elsewhere():
    """A callback of worker 0's program raises an exception while the others' sums are on their
    way. Then all go on."""
    if bps.size() == 1:
        return None
    values = jnp.ones(2**20) + bps.rank()

    def check(total, fails):
        if fails:
            raise ValueError(f"{total} is no sum")
        return np.float32(0)

    @jax.jit
    def function(values, fails):
        # All have started when the first sum has come.
        scaled = [values * factor for factor in range(1, 5)]
        total, *sums = _sum([jnp.ones(1), *scaled], "elsewhere")
        result = jax.ShapeDtypeStruct((), jnp.float32)
        zero = jax.experimental.io_callback(check, result, total[0], fails)
        return [each[::100000] + zero for each in sums]

    def wrong(results):
        total = sum(range(1, bps.size() + 1))
        pairs = [(factor * total, each) for factor, each in enumerate(results, start=1)]
        return [float(value) for right, each in pairs for value in each if value != right]

    first, found = None, []
    try:
        with bps.jax.exchange_errors():
            found.append(wrong(jax.block_until_ready(function(values, bps.rank() == 0))))
    except jax.errors.JaxRuntimeError as error:
        first = str(error)
    found += [wrong(jax.block_until_ready(function(values, False))) for _ in range(3)]
    return first, found


def names():
    """Which exchanges a program makes, and under which names."""
    x = jnp.ones(3)

    def at_one_place(x):
        return [bps.jax.push_pull(x * i) for i in range(2)]

    def twice(x):
        return _sum(x, "twice") + _sum(2 * x, "twice")

    def unused(x):
        _sum(x, "unused")
        return x

    before = set(_engine.next_rounds())
    counts = [_exchanges(jax.jit(f), x) for f in (at_one_place, twice, unused)]
    tree = {"dense": [x, 2 * x], "scale": jnp.float32(1)}
    bps.jax.push_pull_tree(tree, name="tree")
    found = sorted(set(_engine.next_rounds()) - before)
    return [count for _, count in counts], _plain(counts[1][0]), found


def starts_before_ends():
    """Worker 0 asks for all sums at once; the others for one after the other, the last one first:
    if worker 0 waited for a sum before it has started all, all would wait for ever."""
    x, places = jnp.ones([1000, 300]), range(6)

    @jax.jit
    def together(x):
        return bps.jax.push_pull([x * i for i in places], op="sum", name="many")

    if bps.rank() == 0:
        return [float(total[0, 0]) for total in together(x)]
    totals = {i: _sum(x * i, f"many/{i}") for i in reversed(places)}
    return [float(totals[i][0, 0]) for i in places]


def shapes_of_each_worker():
    """Each worker's program is another one, and starts its exchanges in the order of all."""

    @jax.jit
    def step(x):
        loss, gradient = jax.value_and_grad(lambda w: (x @ w).sum())(jnp.ones([4]))
        gradient = _sum(gradient, "gradient")
        return gradient, _sum(loss, "loss"), _sum(jnp.float32(x.shape[0]), "rows")

    results = step(jnp.ones([3 + bps.rank(), 4]))
    return [np.asarray(value).ravel()[0].tolist() for value in results]


def trees():
    rank = bps.rank()
    state = {"weights": jnp.full(3, rank + 1.0), "step": rank, "none": None, "on": rank == 0}
    copied = bps.jax.broadcast_tree(state)
    reducer = bps.jax.sum_gradients(name="reduced")
    gradients = {"a": jnp.full(2, rank + 1.0), "b": (jnp.ones([2, 2]),)}

    @jax.jit
    def update(gradients):
        return reducer.update(gradients, reducer.init(None))

    reduced, left = update(gradients)
    kept = jax.tree_util.tree_structure(reduced) == jax.tree_util.tree_structure(gradients)
    return (
        _plain(copied["weights"]),
        (int(copied["step"]), copied["none"], bool(copied["on"])),
        _plain(reduced["a"]),
        left,
        kept,
    )


def refusals():
    x = jnp.ones(3)
    two = jax.sharding.Mesh(np.asarray(jax.devices()), ("d",))
    spread = jax.device_put(
        jnp.ones(4), jax.sharding.NamedSharding(two, jax.sharding.PartitionSpec("d"))
    )
    return {
        "dtype": _message(lambda: bps.jax.push_pull(jnp.ones(2, jnp.complex64))),
        "copied dtype": _message(lambda: bps.jax.broadcast(jnp.ones(2, jnp.float8_e4m3fn), 0)),
        "average of integers": _message(lambda: bps.jax.push_pull(jnp.ones(2, jnp.int32))),
        "op": _message(lambda: bps.jax.push_pull(x, op="adasum")),
        "two devices": _message(lambda: bps.jax.push_pull(spread, name="spread")),
        "two devices in jit": _message(jax.jit(lambda x: bps.jax.push_pull(x, name="s")), spread),
        "compression": _message(lambda: bps.jax.push_pull(x, compression="thc")),
        "max of int8": _message(lambda: bps.jax.push_pull(x, op="max", compression="int8")),
        "factor": _message(lambda: _sum(jnp.ones(2, jnp.int32), "f", prescale_factor=2.0)),
        "scalar rows": _message(lambda: bps.jax.gather(jnp.float32(1))),
        "root": _message(lambda: bps.jax.broadcast(x, 9)),
        "name": _message(lambda: bps.jax.push_pull(x, name="")),
    }


def disagreements():
    """The engine's sentence comes once, and the next exchange works."""
    x = jnp.ones(2 + bps.rank())
    inside = jax.jit(lambda x: _sum(x, "inside"))

    def plainly(x):
        with bps.jax.exchange_errors():
            return jax.block_until_ready(inside(x))

    messages = [
        _message(lambda: _sum(x, "outside")),
        _message(plainly, x),
        _message(lambda: bps.jax.gather(x, name="rows of each")),
    ]
    return messages, float(inside(jnp.ones(2))[0])
