"""Models with steps of their own, and loops, in 2 real worker processes."""

import os

import pytest

from tests import workers
from tests.selection import asked_values, some_extended

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(620)

PROGRAM = os.path.join(os.path.dirname(__file__), "own_step_programs.py")
TRAININGS = [
    "autoencoder",
    "gan",
    "distiller",
    "contrastive",
    "layers_built_in_a_loop",
    "lengths_that_differ",
]
_EXTENDED = ("gan", "contrastive")
SCENARIOS = [
    "loop_without_state",
    "compiled_outside_on_a_gpu_machine",
    "wrong_input",
    "forgotten_scope",
    "remote_monitor",
    "tensor_of_losses",
    "updates_in_branches",
    "updates_in_branches_of_a_loop",
    "eager_step_that_wants_numbers",
    *[name for name in TRAININGS if name not in _EXTENDED],
]


@pytest.fixture(scope="module")
def group(request):
    asked = asked_values(request, "scenario", test_weights_begin_and_stay_equal)
    return workers.run(PROGRAM, list(dict.fromkeys([*SCENARIOS, *asked])), 2)


@pytest.mark.parametrize("scenario", some_extended(TRAININGS, _EXTENDED))
def test_weights_begin_and_stay_equal(scenario, group):
    first, second = group[scenario]
    assert first["weights"] and first["weights"] == second["weights"]


def test_a_model_without_call_trains(group):
    for result in group["autoencoder"]:
        assert result["moved"] and result["logs"] == ["loss"]
        assert result["traces"] == 2  # to be built, and to train


def test_metrics_that_only_the_step_builds_count_each_row_once(group):
    for result in group["distiller"]:
        assert result["accuracy"] == pytest.approx(result["expected"], abs=1e-6)


def test_other_models_keep_the_error_of_building(group):
    for ours, of_tensorflow in group["wrong_input"]:
        assert ours == of_tensorflow == [of_tensorflow[0], True]


def test_a_gradient_divided_by_own_rows_is_made_right_or_refused(group):
    first, second = group["tensor_of_losses"]
    assert first == second
    refused = {
        ("divided and clipped", False): "computes with the result before an optimizer gets it",
        ("divided", True): "runs eagerly",
        ("divided with NumPy's number", True): "runs eagerly",
        ("divided and clipped", True): "runs eagerly",
    }
    for case, result in first.items():
        if case in refused:
            assert "divides the gradient of a tensor of losses (" in result
            assert f"own rows, and {refused[case]}. " in result
        else:
            assert isinstance(result, list), (case, result)


def _check_told(said, kind):
    assert said.startswith("InvalidArgumentError: ")
    assert f"the workers differ in the condition of a {kind} with an update (own_step_pro" in said
    assert "decide alike on all workers" in said


def _check_trained(results, *cases):
    first, second = results
    for case in cases:
        assert isinstance(first[case], list) and first[case] == second[case], case


def test_workers_that_part_at_an_update_are_told(group):
    for results in group["updates_in_branches"]:
        _check_told(results["while", "parting"], "loop")
    _check_trained(group["updates_in_branches"], ("twice", "parting"))


@pytest.mark.slow
def test_workers_that_part_in_all_ways_are_told():
    scenario = 'updates_in_branches={"all_kinds": true}'
    both = workers.run(PROGRAM, [scenario], 2)[scenario]
    kinds = {"if": "branch", "while": "loop", "for": "loop", "own steps": "loop"}
    for results in both:
        for name, kind in kinds.items():
            _check_told(results[name, "parting"], kind)
        said = results["if", "compiled"]
        assert said.startswith("ValueError: an update lies in a branch (own_step_programs.py:")
        assert "own rows, and XLA compiles the step: decide alike" in said
    _check_trained(both, ("twice", "parting"), ("twice", "compiled"), ("while", "together"))


def test_branches_of_a_loop_that_workers_may_not_share_are_named(group):
    for said in group["updates_in_branches_of_a_loop"]:
        assert len(said) == 2
        for text, function in zip(said, ("_if_positive", "_while_large"), strict=True):
            assert text.startswith("an update lies in a branch or loop (own_step_programs.py:")
            assert f"{function}): if a worker takes another way than the others, they wait" in text


def test_an_eager_step_may_want_numbers(group):
    first, second = group["eager_step_that_wants_numbers"]
    assert len({*first["rows"], *second["rows"]}) == 40
    assert first["logs"] == second["logs"] and first["logs"].keys() == {"loss", "mae"}
    assert first["weights"] == second["weights"]


def test_a_loop_that_changes_nothing_but_variables(group):
    assert group["loop_without_state"] == [{"total": 190.0, "steps": 4}] * 2


def test_what_keras_has_compiled_by_itself_stays_compiled(group):
    for before, after in group["compiled_outside_on_a_gpu_machine"]:
        assert before == after == [True, False]


def test_a_forgotten_scope_is_noticed(group):
    for said in group["forgotten_scope"]:
        assert len(said) == 1
        assert "the model 'lonely' trains on this worker alone" in said[0]
        assert "with strategy.scope()" in said[0]


def test_logs_are_sent_once(group):
    assert group["remote_monitor"] == [2, 0]


def test_datasets_of_lengths_that_differ_end_together(group):
    first, second = group["lengths_that_differ"]
    assert first["steps"] == second["steps"] > 7  # the longer generator's alone
    assert first["ragged"] == [1, 1, 0] and second["ragged"] == [1, 1, 1]
