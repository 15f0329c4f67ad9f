"""The exchanges of JAX's arrays in 1, 2 and 3 real worker processes, without TensorFlow."""

import os
import re

import numpy as np
import pytest

from tests import workers
from tests.cluster import describe, outcome_of, run_processes

pytest.importorskip("jaxlib", reason="jax is not installed")
from tests.jax import lost_jax_programs  # noqa: E402

PROGRAM = os.path.join(os.path.dirname(__file__), "jax_programs.py")
SCENARIOS = [
    "before_init",
    "start",
    "all_dtypes",
    "shapes",
    "options",
    "gradients",
    "transformations",
    "failures_elsewhere",
    "names",
    "starts_before_ends",
    "shapes_of_each_worker",
    "trees",
    "refusals",
    "disagreements",
]
_SIZES = [pytest.param(1, marks=pytest.mark.slow)]
_SIZES += [2, pytest.param(3, marks=pytest.mark.extended)]
# Two devices of JAX's in each worker, of which exchanges take one.
_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    "BYTEPS_MIN_COMPRESS_BYTES": "1024",
}


@pytest.fixture(scope="module", params=_SIZES, ids=lambda size: f"{size}workers")
def group(request):
    return workers.run(PROGRAM, SCENARIOS, request.param, **_ENVIRONMENT)


def test_call_before_init_is_an_error(group):
    for kind, message in group["before_init"]:
        assert kind == "BytePSError" and "tf_byteps.init() has not been called" in message


def test_tensorflow_is_not_loaded(group):
    assert group["start"] == [[]] * group.size


def test_every_dtype_and_op(group):
    own = [np.arange(6).reshape(2, 3) + rank for rank in range(group.size)]
    expected = {
        "sum": sum(own),
        "average": sum(own) / group.size,
        "min": own[0],
        "max": own[-1],
        "product": np.prod(own, axis=0),
        "broadcast": own[-1],
        "gather": np.concatenate(own),
    }
    for results in group["all_dtypes"]:
        assert len(results) == 8 * 3 + 4 + 7 + 2 * 15
        for (dtype, op), found in results.items():
            values = np.asarray(found)
            wanted = expected[op] != 0 if dtype == "bool" else expected[op]
            np.testing.assert_allclose(
                values, np.broadcast_to(wanted, values.shape), rtol=1e-2, err_msg=f"{dtype} {op}"
            )


def test_shapes(group):
    size = group.size
    for scalar, empty, (first, second), nothing, same_key in group["shapes"]:
        assert scalar == sum(range(size)) and empty == (0, 4) and nothing == []
        assert first == [size, size] and second == [[size]] * 3
        assert same_key


def test_options(group):
    total = sum(range(1, group.size + 1))
    for compressed, scaled, urgent, scoped in group["options"]:
        assert len(compressed) == 5
        for dtype, value in compressed.values():
            assert dtype == "float32" and value == pytest.approx(total, rel=0.02)
        assert (scaled, urgent, scoped) == (2 * total, total, total)


def test_gradients_add_up_over_the_workers(group):
    size = group.size
    total = sum(range(1, size + 1))
    for rank, (inside, outside, forward, second, refused) in enumerate(group["gradients"]):
        own = np.asarray([[1.0, 2.0, 3.0]] * 2) * (rank + 1)
        rows = np.arange(2 * rank + 1.0, 2 * rank + 3)[:, None]
        expected = [
            2 * own * total,
            np.full_like(own, total / size),
            np.full_like(own, total if rank == size - 1 else 0),
            np.broadcast_to(rows * total, own.shape),
        ]
        for gradient, wanted in zip(inside + outside, expected + expected[:1], strict=True):
            np.testing.assert_allclose(gradient, wanted)
        base = np.asarray([[1.0, 2.0, 3.0]] * 2)
        squares = sum(i * i for i in range(1, size + 1)) * base**2
        np.testing.assert_allclose(forward[0], squares)
        np.testing.assert_allclose(forward[1], 2 * base * total)
        np.testing.assert_allclose(second, np.full_like(own, 2 * total))
        assert refused[0] == "NotImplementedError" and "op 'max' has no gradient" in refused[1]


def test_transformations(group):
    size = group.size
    own = [np.asarray([1.0, 2.0]) + rank for rank in range(size)]
    total = sum(own)
    batch = [np.stack([x, 10 * x, 100 * x]) for x in own]
    for rank, results in enumerate(group["transformations"]):
        expected = {
            "used afterwards": total + own[rank],
            "donated": total,
            "fori_loop": total / size + 3,
            "scan": total * size * 0.5,
            "cond": total if rank == 0 else -total,
            "checkpoint": 2 * total * size,
            "vmap": sum(batch),
            "vmap in jit": sum(batch),
            "vmap of gather": np.concatenate(batch, axis=1),
            "runs in flight": 28 * total,
        }
        assert results.keys() == expected.keys()
        for name, found in results.items():
            np.testing.assert_allclose(found, expected[name], err_msg=name)


def test_a_program_that_fails_elsewhere_sends_what_it_has_started(group):
    if group.size == 1:
        pytest.skip("nothing is sent")
    for rank, (error, wrong) in enumerate(group["failures_elsewhere"]):
        assert (error is not None and "is no sum" in error) if rank == 0 else error is None
        assert wrong == [[]] * (3 if rank == 0 else 4)


def test_names(group):
    place = "jax_programs.py:"
    for counts, twice, found in group["names"]:
        assert counts == [2, 2, 1]
        assert twice == [3 * group.size] * 3
        derived = [name for name in found if name.startswith("push_pull@")]
        assert len(derived) == 2 and all(place in name for name in derived)
        assert derived[1] == f"{derived[0]}#1"
        assert set(found) - set(derived) == {
            "twice",
            "unused",
            "tree['dense'][0]",
            "tree['dense'][1]",
            "tree['scale']",
        }


def test_all_exchanges_of_a_list_start_before_any_is_waited_for(group):
    expected = [float(i * group.size) for i in range(6)]
    assert group["starts_before_ends"] == [expected] * group.size


def test_programs_of_the_workers_may_differ(group):
    rows = sum(3 + rank for rank in range(group.size))
    assert group["shapes_of_each_worker"] == [[rows, 4.0 * rows, rows]] * group.size


def test_trees(group):
    mean = sum(range(1, group.size + 1)) / group.size
    for weights, others, reduced, state, kept in group["trees"]:
        assert weights == [1.0] * 3 and others == (0, None, True)
        assert reduced == [mean] * 2 and state == () and kept


def test_refusals(group):
    expected = {
        "dtype": ("TypeError", "push_pull cannot exchange an array of dtype complex64"),
        "copied dtype": ("TypeError", "broadcast cannot exchange an array of dtype float8"),
        "average of integers": ("ValueError", "an average of int32 is not exact"),
        "op": ("NotImplementedError", "op 'adasum' is not supported"),
        "two devices": ("BytePSError", "an exchange in a program for 2 devices"),
        "two devices in jit": ("BytePSError", "an exchange in a program for 2 devices"),
        "compression": ("NotImplementedError", "'thc' exchanges an array in two steps"),
        "max of int8": ("ValueError", "is for op 'sum' and 'average'"),
        "factor": ("TypeError", "a factor needs a floating dtype, got int32 and 2.0"),
        "scalar rows": ("ValueError", "a scalar has no axis 0 to gather along"),
        "root": ("ValueError", f"root_rank must be a rank from 0 to {group.size - 1}, got 9"),
        "name": ("ValueError", "name must be a string of 1 to 1024 bytes, got ''"),
    }
    for found in group["refusals"]:
        assert found.keys() == expected.keys()
        for case, (kind, words) in expected.items():
            assert found[case][0] == kind and words in found[case][1], (case, found[case])


def test_workers_that_disagree_get_one_sentence(group):
    for messages, after in group["disagreements"]:
        assert after == group.size
        if group.size == 1:
            assert messages == [None] * 3
            continue
        for (kind, message), name in zip(messages, ("outside", "inside", "rows of each")):
            assert kind == "ExchangeError"
            assert message.startswith(f'tensor "{name}"') and "FAILED_PRECONDITION" not in message
        # Workers on GPUs of one host notice it before a server does.
        disagree = re.compile("workers (of this host )?disagree")
        assert disagree.search(messages[0][1]) and disagree.search(messages[1][1])
        assert "rows" in messages[2][1]


def test_a_lost_worker_is_an_error_of_the_engine():
    env = {"JAX_PLATFORMS": "cpu"}
    outcomes = run_processes(lost_jax_programs.survive, 2, 1, env=env, timeout=120)
    left = outcome_of(outcomes, "worker 0")
    assert left.result is not None, describe(outcomes)
    kinds, messages = zip(*left.result)
    assert kinds == ("ExchangeError", "ExchangeError"), left.result
    assert messages[0] == messages[1]
    assert "worker 1" in messages[0]
