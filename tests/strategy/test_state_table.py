"""Each cell of the table of what happens to state, in docs/strategy_contract.md, has its tests."""

import pathlib
import subprocess
import sys

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_DOCS = _ROOT / "docs" / "strategy_contract.md"
_COLUMNS = ("state", "at another `fit`", "in a file", "started again from the file")
_KEPT = "strategy/test_kept_state.py::"
_ACCUMULATED = "strategy/test_accumulation.py::test_it_goes_on_as_in_one_process"
_RESIDUALS = "strategy/test_residuals.py::"
_STATE = "strategy/test_state.py::"
_AGAIN = "strategy/test_checkpoints.py::"
_TABLES = "tables/test_tables.py::test_files_have_whole_tables_and_states_for_any_number_of_workers"


def _kept(test, *parameters):
    return [f"{_KEPT}{test}[{each}]" for each in parameters]


def _accumulated(*parameters):
    return [f"{_ACCUMULATED}[{each}]" for each in parameters]


def _like_one_process(*cases):
    return (
        _kept("test_another_fit_takes_over_worker_0s", *cases),
        _kept("test_a_file_has_what_that_of_one_process_has", *cases),
        _kept("test_it_goes_on_as_in_one_process", *(f"{c}-{n}" for c in cases for n in (2, 3))),
    )


# What a row's first cell begins with: the tests of its other cells.
_TESTS = {
    "weights, counters, ": _like_one_process("weights"),
    "slots of optimizers, ": _like_one_process("weights", "loss_scale", "two_optimizers"),
    "rows of `DistributedEmbedding`": ([_TABLES], [_TABLES], [_TABLES]),
    "moving statistics": (
        [
            f"{_KEPT}test_statistics_are_averaged_where_an_epoch_ends",
            f"{_STATE}test_statistics_are_the_same_everywhere[trained_on_batches]",
        ],
        [
            *_kept("test_all_go_on_with_the_average", 3),
            f"{_STATE}test_statistics_that_are_saved_within_an_epoch_are_those_of_all_workers",
        ],
        _kept("test_all_go_on_with_the_average", 2, 3),
    ),
    "gradients accumulated ": (
        _accumulated("fits-2", "fits-3", "saved_after_batches-2"),
        _accumulated("saved_after_an_epoch-2", "saved_after_batches-2", "checkpointed-2"),
        _accumulated("saved_after_an_epoch-2", "backed_up, 3-2", "backed_up, 3-3"),
    ),
    "scales and histories of `quantize": _like_one_process("float8"),
    "kind `own`": (
        _kept("test_another_fit_leaves_a_worker_its_own", "queue", "stateful_rnn"),
        _kept("test_all_begin_with_what_the_file_has_of_worker_0", "queue-3", "stateful_rnn-3"),
        _kept(
            "test_all_begin_with_what_the_file_has_of_worker_0",
            *(f"{case}-{size}" for case in ("queue", "stateful_rnn") for size in (2, 3)),
        ),
    ),
    "metrics": (
        [f"{_KEPT}test_metrics_that_are_not_reset_go_on_with_a_workers_own_counts"],
        _kept("test_metrics_are_in_no_file", 0, 3),
        _kept("test_metrics_are_in_no_file", 2, 3),
    ),
    "error feedback ": (
        [f"{_KEPT}test_error_feedback_goes_on_at_another_fit"],
        [f"{_RESIDUALS}test_a_training_that_goes_on_gets_the_same_weights"],
        [
            f"{_RESIDUALS}test_a_training_that_goes_on_gets_the_same_weights",
            f"{_RESIDUALS}test_other_workers_begin_at_zero_and_say_so",
        ],
    ),
    "a `tf.Variable` of the program's own ": tuple(
        [f"{_KEPT}test_a_variable_of_the_programs_own"] for _ in range(3)
    ),
    "position in the data": (
        [f"{_KEPT}test_epochs_begin_anew_in_the_data"],
        [f"{_KEPT}test_epochs_begin_anew_in_the_data"],
        [
            f"{_KEPT}test_epochs_begin_anew_in_the_data",
            *_accumulated("backed_up, 3-2", "backed_up, 3-3"),
            f"{_AGAIN}test_losses_are_those_of_an_undisturbed_run[dataset]",
        ],
    ),
}


def _rows():
    """The cells of each row of the table."""
    section = _DOCS.read_text().split("## What happens to state\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    assert rows[0] == _COLUMNS
    return rows[2:]


def test_each_row_has_its_tests():
    for row in _rows():
        assert len(row) == len(_COLUMNS) and all(row), row
        found = [start for start in _TESTS if row[0].startswith(start)]
        assert len(found) == 1, f"the tests of this row of {_DOCS.name} are not listed: {row}"
    for start, cells in _TESTS.items():
        assert any(row[0].startswith(start) for row in _rows()), f"{start}: there is no such row"
        assert len(cells) == len(_COLUMNS) - 1 and all(cells), f"{start}: a cell has no test"


def test_the_tests_exist():
    """Those of this name and with these parameters, as pytest collects them."""
    listed = {f"tests/{test}" for cells in _TESTS.values() for cell in cells for test in cell}
    files = sorted({test.partition("::")[0] for test in listed})
    options = ["--collect-only", "-q", "-m", "", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert listed <= set(done.stdout.splitlines()), done.stdout + done.stderr
