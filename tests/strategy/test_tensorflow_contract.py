"""TensorFlow's own contract of a strategy, in 1 and 2 workers.

What TensorFlow ships to check it, `strategy_test_lib`, runs against `BytePSStrategy`: `LIBRARY`
says which of its methods, and why not the others. docs/strategy_tests.md has the same table.
"""

import contextlib
import inspect
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from tests import workers
from tests.cluster import clean_environment, run_workers

_HERE = pathlib.Path(__file__).parent
_DOCS = _HERE.parents[1] / "docs" / "strategy_tests.md"
PROGRAM = str(_HERE / "contract_programs.py")

_TIMEOUT = 600  # seconds, of which an idle machine of two cores needs a tenth
_SESSIONS = "needs a session of TensorFlow 1"
LIBRARY = {
    "DistributionTestBase": {
        "_test_minimize_loss_eager": (1, 2),
        "_test_minimize_loss_graph": _SESSIONS,
        "_test_summary_for_replica_zero_only": (1, 2),
        "_test_replica_id": (1, 2),
        "_test_call_and_merge_exceptions": (1, 2),
        "_input_fn_to_test_input_context": (1, 2),
        "_test_input_fn_iterable": (1, 2),
        "_test_input_fn_iterator": (1,),
        "_test_global_step_update": (1, 2),
        "_test_numpy_dataset": "for strategies of TensorFlow 1 only",
        "_test_trainable_variable": (1, 2),
    },
    "OneDeviceDistributionTestBase": {
        "_test_run": (1,),
        "_test_all_reduce_sum": (1,),
        "_test_all_reduce_sum_gradients": _SESSIONS,
        "_test_all_reduce_sum_gradient_tape": (1,),
        "_test_all_reduce_mean": (1,),
        "_test_all_reduce_mean_gradients": _SESSIONS,
        "_test_all_reduce_mean_gradient_tape": (1,),
        "_test_collective_comms": (1,),
        "_test_collective_comms_gradients": _SESSIONS,
        "_test_collective_comms_gradient_tape": (1,),
        "_test_device_and_input_device_are_colocated": _SESSIONS,
        "_test_device_and_input_device_are_colocated_with_function": _SESSIONS,
    },
    "TwoDeviceDistributionTestBase": {
        "_test_run": (2,),
        "_test_all_reduce_sum": (2,),
        "_test_all_reduce_sum_gradients": (2,),
        "_test_all_reduce_sum_gradient_tape": (2,),
        "_test_all_reduce_mean": (2,),
        "_test_all_reduce_mean_gradients": (2,),
        "_test_all_reduce_mean_gradient_tape": (2,),
        "_test_collective_comms": (2,),
        "_test_collective_comms_gradients": (2,),
        "_test_collective_comms_gradient_tape": (2,),
    },
    "RemoteSingleWorkerMirroredStrategyBase": {
        "_get_num_gpus": (1, 2),
        "_testNumReplicasInSync": (1, 2),
        "_testMinimizeLoss": (1, 2),
        "_testDeviceScope": "asks for the device of a remote task; a worker computes on its own",
        "_testMakeInputFnIteratorWithDataset": (1,),
        "_testMakeInputFnIteratorWithCallable": (1,),
    },
}
# Methods that others call, or that a scenario of its own calls.
_CALLED_BY_OTHERS = {
    "_get_num_gpus",
    "_input_fn_to_test_input_context",
    "_test_collective_comms",
    "_test_collective_comms_gradient_tape",
    "_test_collective_comms_gradients",
    "_test_input_fn_iterable",
    "_test_input_fn_iterator",
    "_test_replica_id",
    "_test_summary_for_replica_zero_only",
}
# TensorFlow skips these ways of calling a method itself.
_SKIPPED = {("_test_all_reduce_sum_gradients", False), ("_test_all_reduce_mean_gradients", False)}

CONTRACT = [
    "input_fn_iterable",
    "replica_id",
    "summaries",
    "all_reduce",
    "batch_reduce_to",
    "cluster_resolver",
    "contexts",
    "exceptions",
    "gather",
    "input_context",
    "keras_variables",
    "misuse",
    "partial_batches",
    "parts_written_in_a_replica",
    "random_streams",
    "read_outside_of_replicas",
    "reduce",
    "reduce_in_function",
    "refused_variables",
    "repeated_construction",
    "run",
    "saved_and_restored",
    "summary_recording",
    "written_in_a_replica",
    "written_outside_of_replicas",
    "cluster_with_chief",  # leaves the job: the last
]


def _scenario(base, method, **arguments):
    return "call=" + json.dumps({"base": base, "method": method, **arguments})


def _library_calls(size):
    """Scenario -> the base class and method that it calls, for a number of workers."""
    calls = {}
    for base, methods in LIBRARY.items():
        for method, sizes in methods.items():
            if isinstance(sizes, str) or size not in sizes or method in _CALLED_BY_OTHERS:
                continue
            if base != "TwoDeviceDistributionTestBase":
                calls[_scenario(base, method)] = f"{base}.{method}"
                continue
            for in_function in (False, True):
                if (method, in_function) not in _SKIPPED:
                    arguments = {"sees_all_workers": True, "run_in_function": in_function}
                    suffix = " in tf.function" if in_function else ""
                    name = f"{base}.{method}{suffix}"
                    calls[_scenario(base, method, **arguments)] = name
    return calls


CALLS = {size: _library_calls(size) for size in (1, 2)}
_SIZES = [(1, pytest.mark.slow), (2, ())]


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """Number of workers -> what they got, run when first asked for."""
    results = {}

    def group(size):
        if size not in results:
            folder = str(tmp_path_factory.mktemp("contract"))
            scenarios = [*CALLS[size], *CONTRACT]
            results[size] = workers.run(
                PROGRAM, scenarios, size, timeout=_TIMEOUT, CONTRACT_FOLDER=folder
            )
        return results[size]

    return group


@pytest.mark.time_limit(_TIMEOUT + 20)
@pytest.mark.parametrize(
    "size, scenario",
    [
        pytest.param(size, scenario, id=f"{size}-{name}", marks=marks)
        for size, marks in _SIZES
        for scenario, name in CALLS[size].items()
    ],
)
def test_method_of_tensorflow(size, scenario, groups):
    assert groups(size)[scenario] == ["ran"] * size


@pytest.mark.time_limit(_TIMEOUT + 20)
@pytest.mark.parametrize("size", [pytest.param(size, marks=marks) for size, marks in _SIZES])
@pytest.mark.parametrize("scenario", CONTRACT)
def test_contract(size, scenario, groups):
    results = groups(size)[scenario]
    assert len(results) == size and all(result == results[0] for result in results)


@pytest.mark.slow
@pytest.mark.time_limit(_TIMEOUT + 20)
def test_in_the_processes_of_tensorflow(tmp_path):
    """`multi_process_runner` starts its processes from a program that is not a Python file."""
    program = tmp_path / "multi_process"
    program.write_text(
        f"#!{sys.executable}\n"
        "from tensorflow.python.distribute import multi_process_runner\n"
        "from tests.strategy.multi_process_cases import MultiProcessTest\n"
        "if __name__ == '__main__':\n"
        "    multi_process_runner.test_main()\n"
    )
    program.chmod(0o755)
    with open(tmp_path / "output", "wb") as file:  # a pipe would stay open in the forked processes
        process = subprocess.Popen(
            [program], env=clean_environment(), stdout=file, stderr=file, start_new_session=True
        )
        try:
            process.wait(_TIMEOUT)
        finally:
            with contextlib.suppress(ProcessLookupError):
                # The runner leaves its last pool of processes.
                os.killpg(process.pid, signal.SIGKILL)
    output = (tmp_path / "output").read_text()
    assert process.returncode == 0, output
    passed = re.findall(r"^\[ +OK \] .*\.(test\w+)_test_", output, re.MULTILINE)
    assert len(passed) == 4, output


def test_no_method_is_forgotten():
    """In another TensorFlow the library may have other methods."""
    from tensorflow.python.distribute import strategy_test_lib

    for base, methods in LIBRARY.items():
        own = vars(getattr(strategy_test_lib, base)).items()
        there = {
            name for name, value in own if inspect.isfunction(value) and name != "test_session"
        }
        assert there == set(methods), base


def test_documentation_has_the_same_table():
    rows = re.findall(r"^\| `(\w+Base)\.(\w+)` \| (.*?) \|$", _DOCS.read_text(), re.MULTILINE)
    assert rows == [
        (base, method, _in_words(sizes))
        for base, methods in LIBRARY.items()
        for method, sizes in methods.items()
    ]


def _in_words(sizes):
    if isinstance(sizes, str):
        return f"does not apply: {sizes}"
    return {(1, 2): "1 and 2 workers", (1,): "1 worker", (2,): "2 workers"}[sizes]


def test_cluster_of_processes_begun_by_variables():
    """These workers host no server, so that they have no port."""
    from tests.strategy.contract_programs import cluster_without_tf_config

    results = run_workers(cluster_without_tf_config, workers=2, servers=1)
    assert results == [[["127.0.0.1:0"] * 2, "127.0.0.1:0"]] * 2


def test_cluster_of_one_process():
    group = workers.run(PROGRAM, ["cluster_without_tf_config", "cluster_of_evaluator"], 0)
    assert group["cluster_without_tf_config"] == [(["127.0.0.1:0"], "127.0.0.1:0")]
    assert group["cluster_of_evaluator"] == [None]
