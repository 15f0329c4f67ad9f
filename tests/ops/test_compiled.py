"""The operations in functions that XLA compiles, in 1 (extended), 2 and 3 (slow) workers."""

import itertools
import os
import re

import numpy as np
import pytest

from tests import workers
from tests.cluster import describe, outcome_of, run_processes
from tests.ops import lost_programs

pytestmark = pytest.mark.time_limit(620)

PROGRAM = os.path.join(os.path.dirname(__file__), "compiled_programs.py")
SCENARIOS = [
    "before_init",
    "start",
    "all_dtypes",
    "options",
    "tiny_numbers",
    "gradients",
    "many_in_flight",
    "starts_before_ends",
    "control_flow",
    "beside_control_flow",
    "one_name_in_program_order",
    "traced_elsewhere",
    "shapes_of_each_worker",
    "refusals",
    "disagreements",
]
_SIZES = [pytest.param(1, marks=pytest.mark.extended), 2, pytest.param(3, marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=_SIZES, ids=lambda size: f"{size}workers")
def group(request):
    return workers.run(PROGRAM, SCENARIOS, request.param)


def test_call_before_init_is_an_error(group):
    for message in group["before_init"]:
        assert "call tf_byteps.init() first" in message


def test_what_is_computed_behind_an_exchange_flushes_denormals(group):
    assert group["tiny_numbers"] == [0] * group.size


def test_every_dtype_and_op(group):
    size = group.size
    own = [np.arange(15.0).reshape(5, 3) % 7 + 10 * rank for rank in range(size)]
    expected = {
        "sum": sum(own),
        "average": sum(own) / size,
        "min": own[0],
        "product": np.prod([each % 3 + 1 for each in own], axis=0),
        "max": own[-1],
        "broadcast": own[-1],
        "gather": np.concatenate(own),
    }
    for results in group["all_dtypes"]:
        assert len(results) == 8
        for dtype, ops in results.items():
            assert ("average" in ops) == ("float" in dtype)
            tolerance = 2e-2 if dtype == "bfloat16" else 2e-3 if dtype == "float16" else 1e-6
            for op, value in ops.items():
                np.testing.assert_allclose(value, expected[op], tolerance, err_msg=f"{dtype} {op}")


def test_options(group):
    size = group.size
    total = size * (size + 1) / 2
    rows = np.zeros([6, 2])
    for rank in range(size):
        rows[[rank, 3]] += rank + 1.0
    for rank, results in enumerate(group["options"]):
        assert results == {
            "compressed": [total] * 3,
            "scaled": [total] * 3,
            "list": [[total] * 3, [2 * total] * 3, [3 * total] * 2],
            "many": [total * (number + 1) for number in range(8)],
            "rows": rows.tolist(),
            "place": [rank, size, rank, size],
            "scalar": total,
            "nothing": [],
        }


def test_gradients(group):
    size = group.size
    total = size * (size + 1) / 2  # the workers weight their losses 1, 2, ...
    for rank, results in enumerate(group["gradients"]):
        first_row = 2 * rank + 1
        expected = {
            "sum": np.full([2, 2], total),
            "average": np.full([2, 2], total / size),
            "broadcast": np.full([2, 2], total / size if rank == 0 else 0.0),
            "gather": total / size * np.array([[first_row] * 2, [first_row + 1] * 2]),
        }
        assert len(results) == 8
        for (name, where), value in results.items():
            np.testing.assert_allclose(value, expected[name], 1e-6, err_msg=f"{name} {where}")


def test_many_in_flight_in_different_order(group):
    ranks = sum(range(group.size))
    expected = {i: ranks + group.size * i for i in range(200)}
    for results in group["many_in_flight"]:
        assert results == [expected] * 3


def test_all_of_a_list_start_before_the_first_ends(group):
    assert group["starts_before_ends"] == [[4.0 * group.size] * 8] * group.size


def test_loops_and_branches(group):
    size = group.size
    for loops, branches in group["control_flow"]:
        assert loops == [[1.0 * size**4, 2.0 * size**4]] * 2
        assert branches == [[1.0 * size, 2.0 * size], [1.0, 2.0]] * 2


def test_loops_branches_and_what_is_around_them_have_one_order(group):
    size = group.size
    for values, gradient, program in group["beside_control_flow"]:
        expected = [size, 2 * size**3, 3 * size, 4 * size, 6 * size]
        assert values == [expected, [*expected[:3], 5 * size, expected[4]]]
        assert gradient == [15.0 * size + 2 * size**3] * 2
        before = _operands(program)
        order = ["beside/first", "while", "beside/between", "conditional", "beside/last/0"]
        for earlier, later in itertools.pairwise(order):
            assert earlier in _all_before(before, later), (earlier, later)


_WHAT = re.compile(r' (while|conditional)\(|"byteps_start".*\bnames = "([0-9a-f]+)"')


def _operands(program):
    """Of each instruction of a program's entry: those that it needs. A start has the name of what
    it starts; the loop and the branch have that of their operation."""
    renamed, before = {}, {}
    for line in program[program.index("ENTRY ") :].splitlines()[1:]:
        name, is_instruction, computed = line.strip().removeprefix("ROOT ").partition(" = ")
        if not is_instruction:
            continue
        what = _WHAT.search(computed)
        if what:
            renamed[name] = what[1] or bytes.fromhex(what[2]).decode()
        operands = re.findall(r"%[\w.-]+", computed)
        before[renamed.get(name, name)] = [renamed.get(each, each) for each in operands]
    return before


def _all_before(before, name):
    found, waiting = set(), [name]
    while waiting:
        for each in before.get(waiting.pop(), []):
            if each not in found:
                found.add(each)
                waiting.append(each)
    return found


def test_uses_of_one_name_stay_in_program_order(group):
    expected = [group.size * x for x in (1.0, 10.0, 100.0, 1000.0)]
    for results in group["one_name_in_program_order"]:
        assert results == [expected] * 5


def test_functions_are_the_same_compiled_and_not(group):
    size = group.size
    expected = [[1.0 * size, 2.0 * size], [2.0 * size, 4.0 * size]]
    for sums, has_own_operation in group["traced_elsewhere"]:
        assert sums == [expected] * 4
        assert has_own_operation == [True, True]


def test_workers_with_other_shapes_exchange_in_one_order(group):
    size = group.size
    for results in group["shapes_of_each_worker"]:
        for step, found in enumerate(results):
            count = size * step + size * (size - 1) // 2
            assert found == [[1.0 * size] * 4, [2.0 * size] * 4, count]


def test_what_xla_cannot_exchange_is_refused_in_a_sentence(group):
    expected = {
        "string": ("TypeError", "string; supported are"),
        "large table": ("ValueError", "a table of shape [1048576, 1024]"),
        "scalar gather": ("ValueError", "scalar has no axis 0"),
        "unknown shape": ("InvalidArgumentError", 'tensor "where" has a shape that is known only'),
    }
    for results in group["refusals"]:
        for case, (kind, text) in expected.items():
            assert results[case][0] == kind, (case, results[case])
            assert text in results[case][1], (case, results[case])


def test_a_failure_reaches_all_and_the_function_works_afterwards(group):
    for messages, after, rows in group["disagreements"]:
        if group.size > 1:
            (kind, shapes), (rows_kind, row_counts) = messages
            assert kind == "FailedPreconditionError" or kind == "InvalidArgumentError"
            assert 'tensor "differs/1"' in shapes
            assert rows_kind == "InvalidArgumentError"
            assert "which a function compiled by XLA cannot gather" in row_counts
        assert after == [1.0 * group.size, 1.0 * group.size, 2.0 * group.size, 3.0 * group.size]
        assert rows == [2 * group.size, 2]


def test_a_lost_worker_is_an_error_of_the_engine():
    outcomes = run_processes(lost_programs.survive, 2, 1, timeout=120)
    left = outcome_of(outcomes, "worker 0")
    assert left.result is not None, describe(outcomes)
    kind, message, _ = left.result
    assert kind == "UnavailableError", left.result
    assert "worker 1" in message and "steps/" in message, left.result
    assert "non-communication" not in message
