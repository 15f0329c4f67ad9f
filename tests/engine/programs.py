"""What the workers of the engine's tests run; without TensorFlow."""

import multiprocessing
import os
import pathlib
import random
import signal
import time

import ml_dtypes
import numpy as np
import psutil

import tf_byteps
from tests.cluster import wait_until
from tf_byteps import _engine
from tf_byteps.declaration import Declaration

PART_BYTES = 1024
DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
SECONDS = 40
FORWARD_ORDER = -(2**31) + 1  # kForwardOrder of cc/worker/state/exchange_request.h


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def start(array, **arguments):
    return _engine.exchange(array, dtype=array.dtype.name, **arguments)


def error_of(handle):
    """The engine's error for an exchange, as [code, message]; fails if there is none."""
    try:
        result = handle.wait(SECONDS)
    except _engine.EngineError as error:
        return [error.code, str(error)]
    raise AssertionError(f"no error, but {result}")


def shapes(dtype):
    """0, scalar, 1, one part - 1, one part, one part + 1 elements, and more than three parts."""
    in_part = PART_BYTES // dtype.itemsize
    return [(0,), (), (1,), (in_part - 1,), (in_part,), (in_part + 1,), (3 * in_part + 5,), (7, 33)]


def values(rank, shape, dtype, seed):
    """Distinct in each rank and position; the sums of three fit exactly in every dtype."""
    generator = np.random.default_rng([rank, seed])
    largest = 40 if dtype.itemsize == 1 else 600
    least = 0 if dtype.name == "uint8" else -largest
    return generator.integers(least, largest, shape).astype(dtype)


def sums():
    """Every dtype at every size, all in flight at once; compares with NumPy."""
    tf_byteps.init()
    rank, size = tf_byteps.rank(), tf_byteps.size()
    pending = []
    for name in DTYPES:
        dtype = numpy_dtype(name)
        for seed, shape in enumerate(shapes(dtype)):
            given = [values(r, shape, dtype, seed) for r in range(size)]
            handle = start(given[rank], name=f"sum/{name}/{shape}")
            expected = np.sum([g.astype(np.float64) for g in given], axis=0)
            pending.append((handle, expected.astype(dtype), f"sum {name} {shape}"))
            if dtype.kind != "i" and dtype.kind != "u":
                handle = start(given[rank], name=f"average/{name}/{shape}", average=True)
                wide = expected.astype(np.float64 if name == "float64" else np.float32)
                average = (wide / wide.dtype.type(size)).astype(dtype)
                pending.append((handle, average, f"average {name} {shape}"))
    for handle, expected, what in pending:
        result = handle.wait(SECONDS)
        assert result.shape == expected.shape and result.dtype == expected.dtype, what
        np.testing.assert_array_equal(result, expected, err_msg=what)
    return len(pending)


def wrapping_integers():
    tf_byteps.init()
    result = {}
    for name in ("int8", "uint8", "int32", "int64"):
        largest = np.array([np.iinfo(name).max], name)
        result[name] = int(start(largest, name=name).wait(SECONDS)[0])
    return result


def extremes():
    """Minimum and maximum over the workers."""
    tf_byteps.init()
    given = np.array([tf_byteps.rank(), -tf_byteps.rank(), 5], np.float32)
    least = start(given, name="min", kind="min").wait(SECONDS).tolist()
    most = start(given, name="max", kind="max").wait(SECONDS).tolist()
    return [least, most]


def half_precision():
    """The sum of 2048, 1, 1: adding in float16 itself would lose both ones."""
    tf_byteps.init()
    given = np.array([2048.0 if tf_byteps.rank() == 0 else 1.0], np.float16)
    return float(start(given, name="half").wait(SECONDS)[0])


def different_order():
    """200 tensors in flight, in another order on each worker, twice."""
    tf_byteps.init()
    rank, size = tf_byteps.rank(), tf_byteps.size()
    for round_number in range(2):
        order = list(range(200))
        random.Random(10 * rank + round_number).shuffle(order)
        handles = {n: start(np.full(1 + n * 7, rank + n, np.float32), name=f"t{n}") for n in order}
        for n, handle in handles.items():
            expected = sum(r + n for r in range(size))
            np.testing.assert_array_equal(handle.wait(SECONDS), np.full(1 + n * 7, expected))
    return True


def opposite_order():
    """200 tensors of three parts each; worker 1 begins with the one that worker 0 has last."""
    tf_byteps.init()
    order = range(200) if tf_byteps.rank() == 0 else reversed(range(200))
    elements = 3 * PART_BYTES // 4
    handles = {n: start(np.full(elements, n, np.int32), name=f"t{n}") for n in order}
    for n, handle in handles.items():
        np.testing.assert_array_equal(handle.wait(SECONDS), np.full(elements, 2 * n))
    return tf_byteps.runtime.config().credit_bytes


def mismatches():
    """Each worker gives something else under one name; then all agree on it again."""
    tf_byteps.init()
    rank = tf_byteps.rank()
    errors = {
        "shape": error_of(start(np.ones(4 + rank, np.float32), name="shape")),
        "dtype": error_of(start(np.ones(4, ["float32", "int32"][rank]), name="dtype")),
        "operation": error_of(
            start(np.ones(4, np.float32), name="operation", kind=["sum", "max"][rank])
        ),
        "average": error_of(start(np.ones(4, np.float32), name="average", average=rank == 0)),
        "root": error_of(
            start(np.ones(4, np.float32), name="root", kind="broadcast", root_rank=rank)
        ),
    }
    for name in errors:
        result = start(np.full(4, rank + 1, np.float32), name=name).wait(SECONDS)
        assert result.tolist() == [3, 3, 3, 3], (name, result)
    return errors


def another_shape_later():
    """All workers change a tensor's shape at the same round, there and back."""
    tf_byteps.init()
    totals = []
    for length in (3, 5, 3, 4000):
        result = start(np.ones(length, np.float32), name="changing").wait(SECONDS)
        assert result.shape == (length,)
        totals.append(float(result.sum()))
    return totals


def one_name_twice():
    """Two live tensors with one name; the first one is not disturbed."""
    tf_byteps.init()
    if tf_byteps.rank() == 0:
        first = start(np.ones(4, np.float32), name="same")
        second = error_of(start(np.ones(4, np.float32), name="same"))
        start(np.ones(1, np.float32), name="go on").wait(SECONDS)
    else:
        start(np.ones(1, np.float32), name="go on").wait(SECONDS)
        first, second = start(np.ones(4, np.float32), name="same"), None
    return [first.wait(SECONDS).tolist(), second]


def given_output():
    """The result in the caller's own array."""
    tf_byteps.init()
    array, output = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
    result = start(array, name="given", output=output).wait(SECONDS)
    return result is output and bool((output == tf_byteps.size() * array).all())


def refused_tensors():
    """What no worker may exchange."""
    tf_byteps.init()
    calls = {
        "bool": lambda: start(np.ones(2, bool), name="bool"),
        "complex64": lambda: start(np.ones(2, np.complex64), name="complex64"),
        "other byte order": lambda: start(np.ones(2, ">f4"), name="order"),
        "integer average": lambda: start(np.ones(2, np.int32), name="average", average=True),
        "other size": lambda: _engine.exchange(np.array([False]), dtype="float32", name="size"),
        "unknown operation": lambda: start(np.ones(2), name="operation", kind="median"),
        "unknown root": lambda: start(np.ones(2), name="root", kind="broadcast", root_rank=7),
        "scalar gather": lambda: start(np.array(1.0), name="scalar", kind="gather"),
        "other output": lambda: start(np.ones(2), name="output", output=np.ones(3)),
        "gather output": lambda: start(np.ones(2), name="rows", kind="gather", output=np.ones(2)),
    }
    errors = {}
    for what, call in calls.items():
        try:
            call().wait(SECONDS)
        except _engine.EngineError as error:
            errors[what] = [error.code, str(error)]
    return errors


def broadcasts():
    """From each root in turn; nothing of the others' NaN may survive."""
    tf_byteps.init()
    rank, size = tf_byteps.rank(), tf_byteps.size()
    for root in range(size):
        for name in DTYPES:
            dtype = numpy_dtype(name)
            for seed, shape in enumerate(shapes(dtype)):
                sent = values(root, shape, dtype, seed)
                blank = np.zeros(shape, dtype) if dtype.kind in "iu" else np.full(shape, np.nan)
                given = sent if rank == root else blank.astype(dtype)
                exchange_name = f"{root}/{name}/{shape}"
                handle = start(given, name=exchange_name, kind="broadcast", root_rank=root)
                result = handle.wait(SECONDS)
                np.testing.assert_array_equal(result, sent, err_msg=exchange_name)
                assert result.shape == shape
    return True


def gathers():
    """Rows of different number from each worker, none from some, in rank order."""
    tf_byteps.init()
    rank, size = tf_byteps.rank(), tf_byteps.size()
    row_counts = [[1] * size, list(range(size)), [0] * size, [2000 * (r + 1) for r in range(size)]]
    for name in DTYPES:
        dtype = numpy_dtype(name)
        for round_number, counts in enumerate(row_counts):
            given = [values(r, (n, 3), dtype, round_number) for r, n in enumerate(counts)]
            result = start(given[rank], name=f"rows/{name}", kind="gather").wait(SECONDS)
            np.testing.assert_array_equal(result, np.concatenate(given))
    return True


def gather_of_unlike_rows():
    tf_byteps.init()
    rows = np.ones((2, 3 + tf_byteps.rank()), np.float32)
    return error_of(start(rows, name="rows", kind="gather"))


def declared_first():
    """Announces tensors in one message, then exchanges them."""
    tf_byteps.init()
    names = [f"declared/{n}" for n in range(50)]
    _engine.declare([Declaration(name, "float32", (3, 4)) for name in names])
    handles = [start(np.ones((3, 4), np.float32), name=name) for name in names]
    return sum(float(handle.wait(SECONDS).sum()) for handle in handles)


def lifecycle():
    """Calls before init, twice, and after shutdown."""
    from tf_byteps.errors import BytePSError

    messages = []
    for call in (tf_byteps.rank, tf_byteps.size, tf_byteps.local_rank, tf_byteps.local_size):
        try:
            call()
        except BytePSError as error:
            messages.append(str(error))
    messages.append(error_of(_engine.exchange(np.ones(1), name="early"))[1])
    tf_byteps.shutdown()  # nothing to do
    tf_byteps.init()
    tf_byteps.init()
    try:
        tf_byteps.init(part_bytes=PART_BYTES + 8)
    except BytePSError as error:
        messages.append(str(error))
    place = [tf_byteps.rank(), tf_byteps.size(), tf_byteps.local_rank(), tf_byteps.local_size()]
    start(np.ones(3, np.float32), name="x").wait(SECONDS)
    tf_byteps.shutdown()
    assert not tf_byteps.is_initialized()
    return [place, messages]


def init_again(times):
    """Leaves the job and comes back."""
    results = []
    for stay in range(times):
        tf_byteps.init()
        given = np.full(2, stay + tf_byteps.rank(), np.float32)
        results.append(start(given, name="x").wait(SECONDS).tolist())
        tf_byteps.shutdown()
    return results


def end_early(how):
    """Worker 1 ends in some way; the others say what they hear."""
    tf_byteps.init()
    start(np.ones(3, np.float32), name="before").wait(SECONDS)
    if tf_byteps.rank() == 1:
        time.sleep(0.5)  # the others have the result above
        if how == "exit":
            os._exit(3)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exception":
            raise ValueError("worker 1 has a bug")
        if how == "goodbye":
            return "left"
    return error_of(start(np.ones(3, np.float32), name="before"))


def late_reader():
    """Worker 1 comes back from a long pause without Python: no heartbeat may depend on that."""
    tf_byteps.init()
    if tf_byteps.rank() == 1:
        import ctypes

        ctypes.PyDLL(None).sleep(4)  # with the interpreter's lock held
    return start(np.ones(1, np.float32), name="x").wait(SECONDS).tolist()


def forked_child():
    """A forked child cannot use the engine, and ends without a word to the others."""
    tf_byteps.init()
    start(np.ones(1, np.float32), name="x").wait(SECONDS)
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            message = error_of(_engine.exchange(np.ones(1), name="x"))
            message = f"{message} {tf_byteps.is_initialized()}"
        except BaseException as error:
            message = repr(error)
        os.write(writable, message.encode())
        raise SystemExit(0)  # through atexit
    _, status = os.waitpid(child, 0)
    answer = os.read(readable, 1000).decode()
    after = start(np.ones(1, np.float32), name="x").wait(SECONDS).tolist()
    return [answer, status, after]


def spawned_child():
    """What a child says that imports the program anew, and with it asks to be a worker."""
    tf_byteps.init()
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    child = context.Process(target=init_in_child, args=(answers,))
    child.start()
    answer = answers.get(timeout=SECONDS)
    child.join()
    after = start(np.ones(1, np.float32), name="x").wait(SECONDS).tolist()
    return [answer, after]


def init_in_child(answers):
    try:
        answers.put(f"is worker {tf_byteps.init()}")
    except tf_byteps.BytePSError as error:
        answers.put(str(error))


def killed_with_a_living_child(pid_file):
    """Worker 1 is killed while a child that it forked sleeps on."""
    tf_byteps.init()
    start(np.ones(1, np.float32), name="x").wait(SECONDS)
    if tf_byteps.rank() == 1:
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        with open(pid_file, "w", encoding="ascii") as file:
            file.write(str(child))
        os.kill(os.getpid(), signal.SIGKILL)
    return error_of(start(np.ones(1, np.float32), name="x"))


def more_than_a_server_has(folder):
    """Waits until the test has limited the server's memory; then one small tensor must work."""
    tf_byteps.init()
    start(np.ones(1, np.float32), name="x").wait(SECONDS)
    folder = pathlib.Path(folder)
    (folder / f"ready {tf_byteps.rank()}").touch()
    wait_until((folder / "limited").exists, 300)
    error = error_of(start(np.ones(64 << 20, np.float32), name="large"))
    return [*error, start(np.ones(1, np.float32), name="x").wait(SECONDS).tolist()]


def counters():
    """One tensor of 1000 float32, 3 rounds."""
    tf_byteps.init()
    for _ in range(3):
        start(np.ones(1000, np.float32), name="weights").wait(SECONDS)
    return _engine.worker_counters()


def just_init():
    tf_byteps.init()
    return [tf_byteps.rank(), tf_byteps.size()]


def only_worker_0_sends():
    tf_byteps.init()
    result = None
    if tf_byteps.rank() == 0:
        result = error_of(start(np.ones(2, np.float32), name="lonely"))
    else:
        time.sleep(4)
    return result


def waits_for_end():
    """Exchanges one tensor, then waits for another one that nobody else sends."""
    tf_byteps.init()
    start(np.ones(3, np.float32), name="before").wait(SECONDS)
    alone = start(np.ones(1, np.float32), name=f"alone {tf_byteps.rank()}")
    print("ready", flush=True)
    return error_of(alone)


def end_early_rank_0():
    tf_byteps.init()
    start(np.ones(3, np.float32), name="before").wait(SECONDS)
    if tf_byteps.rank() == 0:
        time.sleep(0.5)
        raise ValueError("worker 0 has a bug")
    return error_of(start(np.ones(1), name="x"))


def leaves_early(seconds):
    """Worker 0 leaves at once, the others after a while; returns how long leaving took."""
    tf_byteps.init()
    start(np.ones(3, np.float32), name="x").wait(SECONDS)
    if tf_byteps.rank() != 0:
        time.sleep(seconds)
    begin = time.monotonic()
    tf_byteps.shutdown()
    return time.monotonic() - begin


def where_payloads_go():
    """Exchanges a tensor; how many bytes of it came from the server's memory, and by the socket."""
    tf_byteps.init()
    array = np.full(1_000_000, tf_byteps.rank() + 1, np.float32)
    result = _engine.exchange(array, name="t").wait()
    assert (result == 3).all()
    counters = _engine.worker_counters()
    return [counters["memory_bytes_read"], counters["wire_bytes_received"]]


def most_connections_to_one_address():
    """After sums of all sizes: how many connections lead to the address that most lead to."""
    assert sums() > 0
    remote = [c.raddr for c in psutil.Process().net_connections("tcp") if c.raddr]
    return max(remote.count(address) for address in remote)


def one_does_not_send(seconds):
    """Rank 1 sends a tensor so much later than the others."""
    tf_byteps.init()
    start(np.ones(3, np.float32), name="before").wait(SECONDS)
    if tf_byteps.rank() == 1:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not _engine.worker_failure():
            time.sleep(0.05)
    start(np.ones(2, np.float32), name="late").wait(SECONDS)
    return True


def _exchange_checked(count, elements):
    """That many sums of a tensor, one after the other; the parts that the last one had."""
    rank, size = tf_byteps.rank(), tf_byteps.size()
    for step in range(count):
        parts = _engine.worker_counters()["pushed_parts"]
        given = [values(r, (elements,), np.dtype(np.float32), step) for r in range(size)]
        result = start(given[rank], name="tuned").wait(SECONDS)
        np.testing.assert_array_equal(result, sum(given))
    return _engine.worker_counters()["pushed_parts"] - parts


def tuned():
    """Parts of a tensor of 4 MB in its first round and later, and the credit later."""
    tf_byteps.init()
    before = _exchange_checked(1, 1_000_000)
    after = _exchange_checked(10, 1_000_000)
    return [before, after, _engine.worker_counters()["credit_bytes"]]


def tuned_overlapping():
    """The credit once it is tuned; when steps of 4 MB overlap, and of 1 MB."""
    tf_byteps.init()
    _exchange_checked(10, 1_000_000)
    credits = [_engine.worker_counters()["credit_bytes"]]
    for elements in (1_000_000, 250_000):
        for _ in range(3):
            array = np.ones(elements, np.float32)
            start(array, name=f"of {elements}", priority=FORWARD_ORDER).wait(SECONDS)
        credits.append(_engine.worker_counters()["credit_bytes"])
    return credits


def automatic():
    """Whether each round of two tensors was exact, with a codec that follows the links."""
    tf_byteps.init()
    rank, size = tf_byteps.rank(), tf_byteps.size()
    results = []
    for name, elements in (("first", 100_000), ("later", 50_000)):
        exact = []
        for step in range(12):
            given = [values(r, (elements,), np.dtype(np.float32), step) for r in range(size)]
            result = start(given[rank] / 3, name=name, codec="auto").wait(SECONDS)
            expected = sum(each / np.float32(3) for each in given)
            np.testing.assert_allclose(result, expected, atol=np.abs(expected).max() / 50)
            exact.append(bool(np.array_equal(result, expected)))
            # All see the same bits.
            largest = start(result, name=f"{name} max", kind="max").wait(SECONDS)
            np.testing.assert_array_equal(result, largest)
        results.append(exact)
    return results


def measured():
    """The credit once it has changed."""
    tf_byteps.init()
    to_begin_with = _engine.worker_counters()["credit_bytes"]
    deadline = time.monotonic() + SECONDS
    step = 0
    array = np.ones(4_000_000, np.float32)
    while True:
        changed = _engine.worker_counters()["credit_bytes"] != to_begin_with
        late = time.monotonic() > deadline
        # All workers end after the same round.
        if start(np.int32([changed or late]), name=f"end {step}").wait(SECONDS)[0] > 0:
            break
        start(array, name="traffic").wait(SECONDS)
        step += 1
    # The others are told at the same time, but may hear it later.
    wait_until(lambda: _engine.worker_counters()["credit_bytes"] != to_begin_with, SECONDS)
    return _engine.worker_counters()["credit_bytes"]
