"""What happens to state at another `fit`, in a file, and when as many workers or others go on from
it: the table of docs/strategy_contract.md.

Others test the cells of moving statistics and metrics (test_state.py), accumulated gradients and
the position in the data (test_accumulation.py), and error feedback (test_residuals.py).
"""

import json
import os
import shutil

import pytest
import workers

from tests import side_by_side

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(2500)

PROGRAM = os.path.join(os.path.dirname(__file__), "kept_state_programs.py")
# How close to one process. What float8 has of gradients depends on rounded weights.
LIKE_ONE_PROCESS = {"slots": 1e-7, "loss_scale": 1e-7, "checkpointed": 1e-7}
CASES = [*LIKE_ONE_PROCESS, "float8", "own"]


def _scenario(case, folder, **arguments):
    arguments["folder"] = str(folder)
    if case == "checkpointed":
        return f"checkpointed={json.dumps(arguments)}"
    return f"kept={json.dumps({'case': case, **arguments})}"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A function of a number of workers, 0 of one process: a function of a case's results.

    Three workers go on from the files of two.
    """
    folders, groups = {}, {}

    def of(size):
        if size not in groups:
            folders[size] = tmp_path_factory.mktemp(f"of-{size}")
            if size == 3:
                of(2)
                shutil.copytree(folders[2], folders[3], dirs_exist_ok=True)
            plain = {} if size else {"plain": True}
            scenarios = {case: _scenario(case, folders[size], **plain) for case in CASES}
            group = workers.run(PROGRAM, list(scenarios.values()), size, timeout=800)
            groups[size] = lambda case: group[scenarios[case]]
        return groups[size]

    return of


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("case", LIKE_ONE_PROCESS)
def test_it_goes_on_as_in_one_process(results, case, size):
    (expected,) = results(0)(case)
    ours = results(size)(case)
    assert all(each == ours[0] for each in ours)
    assert ours[0]["after"].keys() == expected["after"].keys()
    for key in ours[0]:
        for our_value, value in zip(_values(ours[0][key]), _values(expected[key]), strict=True):
            assert side_by_side.difference(our_value, value) < LIKE_ONE_PROCESS[case], key


def _values(shown):
    return shown.values() if isinstance(shown, dict) else shown


def test_steps_are_counted_and_drawn_once_for_all(results):
    state = results(2)("slots")[0]["after"]
    (steps,) = [value for path, value in state.items() if path.endswith("/steps")]
    assert steps == 15  # three epochs of five batches


@pytest.mark.parametrize("size", [2, 3])
def test_metrics_begin_anew(results, size):
    for case in ("slots", "loss_scale", "float8", "own"):
        for shown in results(size)(case):
            assert not any(shown["metrics"])


@pytest.mark.parametrize("size", [2, 3])
def test_float8_goes_on_alike_on_all_workers(results, size):
    ours = results(size)("float8")
    assert all(each["after"] == ours[0]["after"] for each in ours)
    assert any("amax_history" in path for path in ours[0]["after"])


@pytest.mark.parametrize("size", [2, 3])
def test_each_workers_own_begins_with_worker_0s_and_parts(results, size):
    queues = [_queue(each["after"]) for each in results(size)("own")]
    assert len(set(queues)) == size
    if size == 2:
        assert len({_queue(each["before"]) for each in results(2)("own")}) == size


def _queue(state):
    (queue,) = [value for path, value in state.items() if path.endswith("/queue")]
    return tuple(queue)
