"""Keras's own tests of tf.distribute, which are in its wheel, with BytePSStrategy instead of
MirroredStrategy. docs/strategy_tests.md says the same as the tables here."""

import ast
import functools
import json
import os
import pathlib
import re

import keras
import pytest

from tests import workers

PROGRAM = os.path.join(os.path.dirname(__file__), "keras_test_programs.py")
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "strategy_tests.md"
_KERAS = pathlib.Path(keras.__file__).parent / "src"

_DISTRIBUTE = "backend.tensorflow.distribute_test", "DistributeTest"
_OPTIMIZER = "backend.tensorflow.optimizer_distribute_test", "OptimizerDistributeTest"
_MOMENTS = "ops.nn_test", "NNOpsCorrectnessTest"
_VARIABLE = "backend.common.variables_test", "VariableNumpyValueAndAssignmentTest"
_DATASET = "trainers.data_adapters.tf_dataset_adapter_test", "TestTFDatasetAdapter"
_SWAP = "callbacks.swap_ema_weights_test", "SwapEMAWeightsTest"

# Why a test cannot pass: a piece of its failure.
PLAIN_VARIABLE = "is not an instance of <class 'tensorflow.python.types.distribute.Distributed"
SHARED_TENSOR = "2.0 (DESIRED)"
ONE_DEVICE = "32 != 16"
NO_TF_KERAS = "skipped: tf_keras not installed"

# (module and class, test, numbers of workers with which it passes, what is shown of all workers)
PASSING = [
    (_DISTRIBUTE, "test_epoch_iterator", (2,), "elements"),
    (_DISTRIBUTE, "test_variable_aggregation", (1, 2), ""),
    (_DISTRIBUTE, "test_variable_synchronization", (1, 2), ""),
    (_DISTRIBUTE, "test_seed_generator", (1, 2), "results"),
    (_DISTRIBUTE, "test_correctness_with_fit_and_regularizer", (1, 2), "results"),
    (_OPTIMIZER, "test_config", (1, 2), ""),
    (_OPTIMIZER, "test_single_step0", (2,), ""),
    (_OPTIMIZER, "test_weight_decay", (1, 2), ""),
    (_OPTIMIZER, "test_correctness_with_golden", (2,), ""),
    (_OPTIMIZER, "test_clip_norm", (1, 2), ""),
    (_OPTIMIZER, "test_clip_value", (1, 2), ""),
    (_OPTIMIZER, "test_stateless_not_supported", (1, 2), ""),
    (_OPTIMIZER, "test_ema", (1,), ""),
    (_OPTIMIZER, "test_gradient_accumulation", (2,), ""),
    (_MOMENTS, "test_moments_sync_with_distribution_strategy0", (1, 2), "results"),
    (_MOMENTS, "test_moments_sync_with_distribution_strategy1", (1, 2), "results"),
    (_VARIABLE, "test_variable_numpy_scalar", (1, 2), ""),
    (_DATASET, "test_distributed_datasets_from_function_adapter_properties", (1,), ""),
    (_DATASET, "test_distributed_datasets_from_function_model_integration", (1, 2), ""),
    (_SWAP, "test_swap_ema_weights_with_tf_distribute", (1, 2), ""),
]
# (module and class, test, number of workers, a piece of the failure)
CANNOT = [
    (_DISTRIBUTE, "test_variable_creation", 2, PLAIN_VARIABLE),
    (_DISTRIBUTE, "test_strategy_run", 2, PLAIN_VARIABLE),
    (_OPTIMIZER, "test_single_step1", 2, NO_TF_KERAS),
    (_OPTIMIZER, "test_ema", 2, SHARED_TENSOR),
    (_DATASET, "test_distributed_datasets_from_function_adapter_properties", 2, ONE_DEVICE),
]


def _scenario(place, test, shown=""):
    module, test_class = place
    arguments = {"module": module, "test": f"{test_class}.{test}", "shown": shown}
    return f"run={json.dumps(arguments)}"


def _passing_with(size):
    return [(place, test, shown) for place, test, sizes, shown in PASSING if size in sizes]


def _failing_with(size):
    return [(place, test, reason) for place, test, count, reason in CANNOT if count == size]


@functools.cache
def _group(size):
    """The results of all tests that are run with so many workers."""
    scenarios = [_scenario(*case) for case in _passing_with(size)]
    scenarios += [_scenario(place, test) for place, test, _ in _failing_with(size)]
    return workers.run(PROGRAM, scenarios, size, timeout=600)


@pytest.mark.time_limit(620)
@pytest.mark.parametrize(
    "size, case",
    [(size, case) for size in (1, 2) for case in _passing_with(size)],
    ids=lambda value: f"{value}workers" if isinstance(value, int) else value[1],
)
def test_passes(size, case):
    results = _group(size)[_scenario(*case)]
    assert results == ["passed"] * size, "\n".join(results)


@pytest.mark.time_limit(620)
@pytest.mark.parametrize("place, test, size, reason", CANNOT, ids=[case[1] for case in CANNOT])
def test_cannot_pass_for_the_reason_that_is_documented(place, test, size, reason):
    for result in _group(size)[_scenario(place, test)]:
        assert reason in result


def test_no_test_of_the_wheel_is_forgotten():
    known = {(place, test.rstrip("01")) for place, test, *_ in PASSING + CANNOT}
    found = set()
    for path in _KERAS.rglob("*_test.py"):
        text = path.read_text()
        if re.search(r"tf\.distribute\.\w*Strategy\(", text):
            module = str(path.relative_to(_KERAS).with_suffix("")).replace("/", ".")
            found |= {((module, cls), test) for cls, test in _tests_with_strategy(text)}
    assert found == known


def _tests_with_strategy(text):
    """(class, method) of the tests that make a strategy, themselves or in `setUp`."""
    for test_class in ast.parse(text).body:
        if not isinstance(test_class, ast.ClassDef):
            continue
        methods = [each for each in test_class.body if isinstance(each, ast.FunctionDef)]
        making = {m.name for m in methods if "Strategy(" in ast.get_source_segment(text, m)}
        for method in methods:
            if method.name.startswith("test") and making & {method.name, "setUp"}:
                yield test_class.name, method.name


def test_page_lists_every_test():
    expected = {test.rstrip("01"): "none" for _, test, *_ in CANNOT}
    for _, test, sizes, _ in PASSING:
        expected[test.rstrip("01")] = " and ".join(str(size) for size in sizes)
    _, _, section = PAGE.read_text().partition("## Keras's own distribution tests\n")
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section, flags=re.M)
    assert dict(rows) == expected
