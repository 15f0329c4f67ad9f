"""A worker without TensorFlow: hands NumPy arrays to the engine."""

import math
import random
import time

import numpy as np

import tf_byteps
from tf_byteps import _engine
from tf_byteps.declaration import Declaration
from tf_byteps.exchange.arguments import FORWARD_ORDER

_WAIT_SECONDS = 280.0
# Of the largest sum: what codecs may be off by. Others lose more of each gradient.
_TOLERANCES = {"": 0, "int8": 0.01, "auto": 0.01, "fp8": 0.08, "int4": 0.25}
_groups = {}


class _Tensor:
    def __init__(self, name, shape, priority, codec, is_narrow):
        self.name = name
        self.priority = priority
        self.codec = codec
        places = np.arange(math.prod(shape), dtype=np.int64) % 251
        # Whole numbers so small fit in 16 bits, and would travel so.
        fraction = 0 if is_narrow else 2**-10
        self.input = (places + tf_byteps.rank() + fraction).astype(np.float32).reshape(shape)
        # Not zeros: their pages would be given out during the first exchange only.
        self.output = np.full(shape, -1, np.float32)

    def start(self):
        return _engine.exchange(
            self.input, name=self.name, priority=self.priority, output=self.output, codec=self.codec
        )

    def is_right(self):
        size = tf_byteps.size()
        mine = tf_byteps.rank()
        expected = (self.input - mine) * size + size * (size - 1) / 2
        if self.codec not in _TOLERANCES:
            return bool(np.isfinite(self.output).all())
        most = _TOLERANCES[self.codec] * expected.max()
        return bool((abs(self.output - expected) <= most).all())


def join():
    tf_byteps.init()
    return [tf_byteps.rank(), tf_byteps.size()]


def leave():
    tf_byteps.shutdown()


def prepare(group, tensors, priorities="forward", codec="", is_narrow=False):
    """Makes tensors of the given (name, shape)s, in forward order.

    Args:
        priorities: "forward" (those of the first layers go first), "none" (all are equal),
            "learned" (as the operations' default), or "next step" (as with cross_step).
        codec: as `compression` takes it; "": none.
        is_narrow: whether the values are such as fit in 16 bits, as in mixed precision.
    """
    fixed = {"none": 0, "learned": None, "next step": FORWARD_ORDER}
    made = [
        _Tensor(f"{group}/{name}", shape, fixed.get(priorities, -index), codec, is_narrow)
        for index, (name, shape) in enumerate(tensors)
    ]
    # All in one message, as a traced function declares its gradients.
    _engine.declare([Declaration(t.name, "float32", t.input.shape, codec=codec) for t in made])
    _groups[group] = made


def split(group, first, rest):
    """Two groups of a group's first tensor and of the others."""
    tensors = _groups.pop(group)
    _groups[first], _groups[rest] = tensors[:1], tensors[1:]


def forget(group):
    """Gives a group's memory back."""
    del _groups[group]


def barrier(name="barrier"):
    array = np.zeros(1, np.float32)
    _engine.exchange(array, name=name).wait(_WAIT_SECONDS)


def exchange(group, during=0.0):
    """All tensors of a group once, in backward order; [begin, end] on all processes' clock.

    They come one after another `during` so many seconds, like gradients: each when its share of the
    bytes has been computed, by each worker up to 5 % faster or slower.
    """
    barrier()
    tensors = _groups[group][::-1]
    seconds_per_byte = during * random.uniform(0.95, 1.05) / sum(t.input.nbytes for t in tensors)
    begin = time.monotonic()
    handles, computed = [], 0
    for tensor in tensors:
        computed += tensor.input.nbytes
        if during:
            time.sleep(max(0, begin + computed * seconds_per_byte - time.monotonic()))
        handles.append(tensor.start())
    for handle in handles:
        handle.wait(_WAIT_SECONDS)
    return [begin, time.monotonic()]


def check(group):
    """Fails if a sum is wrong."""
    wrong = [tensor.name for tensor in _groups[group] if not tensor.is_right()]
    if wrong:
        raise AssertionError(f"wrong sums: {wrong}")


def latency(group, count):
    """Seconds of each of `count` exchanges of a group's only tensor, one after the other."""
    (tensor,) = _groups[group]
    barrier()
    seconds = []
    for _ in range(count):
        begin = time.perf_counter()
        tensor.start().wait(_WAIT_SECONDS)
        seconds.append(time.perf_counter() - begin)
    return seconds


def resident_bytes():
    """What is in memory now; the peak counts from here."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return _status("VmRSS")


def peak_bytes():
    """The most that was in memory since `resident_bytes`."""
    return _status("VmHWM")


def _status(field):
    with open("/proc/self/status") as file:
        (line,) = (line for line in file if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def overtake(large, small, pause):
    """Starts all tensors of one group, waits `pause` seconds, then starts another's only one.

    Returns:
        The seconds from then until that one is done, and until all are done.
    """
    (urgent,) = _groups[small]
    barrier()
    handles = [tensor.start() for tensor in _groups[large]]
    time.sleep(pause)
    begin = time.monotonic()
    urgent.start().wait(_WAIT_SECONDS)
    done = time.monotonic() - begin
    for handle in handles:
        handle.wait(_WAIT_SECONDS)
    return [done, time.monotonic() - begin]


def flow_limits(shapes, servers):
    """For a job that exchanges float32 tensors of these shapes: bytes of the longest part, and of
    the credit."""
    config = tf_byteps.runtime.config()
    flow = _engine.EngineOptions().flow
    flow.part_bytes, flow.credit_bytes = config.part_bytes or 0, config.credit_bytes or 0
    hosts = [
        [f"{kind}{n}" for n in range(count)]
        for kind, count in (("worker", tf_byteps.size()), ("server", servers))
    ]
    placed = _engine.place(shapes, *hosts, flow.part_bytes)
    longest = max(elements for parts in placed for elements, _ in parts)
    return [4 * longest, flow.credit(4 * longest)]
