"""Two workers, or three, give what one process gives, in every way to use tf_byteps."""

import collections
import importlib.metadata

import numpy as np
import pytest

from tests import side_by_side
from tests.cluster import run_workers
from tests.conformance import running
from tests.conformance.sides import COLUMNS, MODES, SINGLE, WORKERS
from tests.selection import asked, asked_values

# Where the number of workers may matter. They split a batch of 8 rows into 3, 3 and 2.
_WITH_THREE_WORKERS = (
    "dense",
    "clipnorm",
    "gradient_accumulation",
    "embedding_adam",
    "embedding_adam_unmerged",
    "mixed_float16_overflow",
    "uneven_arrays",
    "all_lengths_modulo_the_batch",
    "uneven_class_and_sample_weights",
    "epoch_and_validation_logs",
    "evaluate",
    "early_stopping",
    "one_worker_stops_all_after_a_batch",
    "predictions_in_input_order",
    "synchronized_batch_normalization",
    "backup_and_restore",
)

# Rows become dense, and so merged, in compiled steps. The variance of a single row is 0: what is
# divided by it is noise, which XLA rounds otherwise.
_NOT_COMPILED = ("embedding_adam_unmerged", "synchronized_batch_normalization")

# In Keras 3.12 they fail in one process, too: its own Muon asks TensorFlow's variables for paths.
_FAILING_IN_KERAS = ("muon",) if importlib.metadata.version("keras").startswith("3.12.") else ()

# What other rows show, too; in make test-all.
_SLOW_ROWS = (
    "accumulation_made_outside_the_scope",
    "adam_by_name",
    "clipvalue",
    "csv_logger",
    "custom_train_step_scaled_by_hand",
    "dataset_shuffled_with_seed",
    "embedding_adam_not_merged",
    "embedding_sgd_as_dense",
    "fewer_rows_than_a_batch",
    "gan_scaled_by_hand",
    "generator_for_model_without_shapes",
    "learning_rate_scheduler",
    "loaded_and_compiled_in_the_scope",
    "loss_scale_made_outside_the_scope",
    "mixed_float16_accumulation_overflow_in_the_update",
    "mixed_float16_own_loss_scale",
    "model_checkpoint_in_one_file",
    "one_row_left_in_dataset",
    "one_worker_stops_all_after_an_execution_of_steps",
    "one_worker_stops_all_at_the_beginning_of_an_epoch",
    "one_worker_stops_all_from_a_list_of_callbacks",
    "own_loop_with_optimizer_made_outside",
    "predictions_of_several_outputs",
    "subclassed_and_eager",
    "two_trainings_in_the_default_order",
    "uneven_steps_per_execution",
    "unrolled_steps_per_execution",
    "weight_decay",
)

# What differs from another row by one setting; in make test-long.
_LONG_ROWS = (
    "arrays_in_the_default_order",
    "average_aggregated_gradients",
    "compiled_outside_the_scope",
    "custom_train_step_with_compute_loss",
    "dataset_of_unknown_length",
    "datasets_shuffled_without_seed",
    "each_worker_evaluates_its_share",
    "embedding_accumulation",
    "embedding_adam_as_dense",
    "generator_of_changing_lengths",
    "global_clipnorm",
    "learning_rate_schedule",
    "loaded_from_rank_0_weights",
    "loaded_outside_the_scope",
    "logs_of_an_own_train_step",
    "mixed_float16_accumulation_overflow",
    "mixed_float16_uneven",
    "model_checkpoint_after_batches",
    "model_checkpoint_on_one_worker_only",
    "moving_statistics_are_averaged",
    "one_row_left",
    "one_worker_saves",
    "only_predicted_in_the_scope",
    "predivide_and_bfloat16",
    "random_numbers_in_the_input",
    "reduce_learning_rate_on_plateau",
    "static_loss_scale",
    "subclassed_and_not_built",
    "tensorboard",
    "terminate_on_nan",
    "uneven_with_accumulation",
    "validation_split_and_dataset",
)

# Of these columns `make test` has a few rows, and make test-long the others.
_LONG_COLUMNS = ("DistributedOptimizer", "compiled")
_IN_ALL_COLUMNS = (
    "dense",
    "clipnorm",
    "gradient_accumulation",
    "embedding_adam",
    "mixed_float16_overflow",
    "uneven_arrays",
)

# In make test. The other rows are in make test-extended, as are a column and these rows of others.
_EXTENDED_COLUMNS = ("3 workers",)
_EXTENDED_IN = {
    "BytePSStrategy": ("uneven_arrays",),
    "DistributedOptimizer": ("clipnorm", "dense"),
    "compiled": (
        "clipnorm",
        "dense",
        "embedding_adam",
        "gradient_accumulation",
        "mixed_float16_overflow",
    ),
}
_EVERYDAY = (
    *_IN_ALL_COLUMNS,
    "custom_train_step",
    "custom_training_loop",
    "early_stopping",
    "embedding_adam_unmerged",
    "epoch_and_validation_logs",
    "evaluate",
    "model_checkpoint",
    "predictions_in_input_order",
    "py_dataset",
    "synchronized_batch_normalization",
    "uneven_class_and_sample_weights",
)

# Minutes of XLA's, for what the other columns show one by one.
_SLOW_COLUMNS = ("compiled, optimizer", "compiled, 3 workers")

# Rows of Keras's callbacks and files, in which XLA changes nothing: compiled in make test-all.
_SLOW_COMPILED = ("tests.conformance.files", "tests.conformance.stopping")

# For all rows of one column: a machine of two cores needs a tenth, if nothing else runs there.
_GROUP_SECONDS = 900


def _marks(name, row, column, is_compiled):
    is_slow = column in _SLOW_COLUMNS or name in _SLOW_ROWS
    is_slow = is_slow or (is_compiled and row.train.__module__ in _SLOW_COMPILED)
    is_long = name in _LONG_ROWS or (column in _LONG_COLUMNS and name not in _IN_ALL_COLUMNS)
    is_extended = name not in _EVERYDAY or name in _EXTENDED_IN.get(column, ())
    is_extended = is_extended or column in _EXTENDED_COLUMNS
    marks = (
        (pytest.mark.slow, is_slow),
        (pytest.mark.long, is_long),
        (pytest.mark.extended, is_extended),
    )
    return [mark for mark, applies in marks if applies]


def _parameters(workers):
    """Rows and columns of the table."""
    return [
        pytest.param(
            name, column, id=f"{column}-{name}", marks=_marks(name, row, column, is_compiled)
        )
        for name, row in running.all_rows().items()
        for column, (mode, size, is_compiled) in COLUMNS.items()
        if mode in row.modes and size in workers
        if (size == WORKERS and not is_compiled) or name in _WITH_THREE_WORKERS
        if not is_compiled or name not in _NOT_COMPILED
        if name not in _FAILING_IN_KERAS
    ]


@pytest.fixture(scope="module")
def selected(request):
    """The rows that this run of pytest asks for: column -> names, and all for the reference."""
    names = collections.defaultdict(set)
    names[SINGLE].update(asked_values(request, "name", test_row, test_row_alone))
    for row in asked(request, test_row):
        names[row["column"]].add(row["name"])
    return {each: sorted(rows) for each, rows in names.items()}


@pytest.fixture(scope="module")
def reference(tmp_path_factory, selected):
    """The rows in one process that does not start tf_byteps."""
    arguments = (SINGLE, str(tmp_path_factory.mktemp("single")), selected[SINGLE])
    return run_workers(
        running.run_rows, workers=1, servers=0, timeout=_GROUP_SECONDS, args=arguments
    )[0]


def _run(column, folder, names, timeout):
    """What each worker got."""
    mode, workers, is_compiled = COLUMNS[column]
    return run_workers(
        running.run_rows,
        workers=workers,
        timeout=timeout,
        env={"BYTEPS_OPERATION_TIMEOUT": "240"},
        args=(mode, str(folder), names, is_compiled),
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory, selected):
    """Column -> what each of its workers got. Every column is run once, when first needed."""
    groups = {}

    def of(column):
        if column not in groups:
            folder = tmp_path_factory.mktemp("shared")
            groups[column] = _run(column, folder, selected[column], timeout=_GROUP_SECONDS)
        return groups[column]

    return of


def _assert_equal(name, reference, workers):
    single, ours = side_by_side.checked(name, reference, workers)
    rtol, atol = (2e-3, 2e-4) if running.all_rows()[name].rounded else (1e-5, 1e-6)
    for array, expected in zip(ours["arrays"], single["arrays"], strict=True):
        np.testing.assert_allclose(np.array(array), np.array(expected), rtol=rtol, atol=atol)


@pytest.mark.time_limit(2 * _GROUP_SECONDS)
@pytest.mark.parametrize(("name", "column"), _parameters(workers=(2, 3)))
def test_row(reference, results, name, column):
    """All rows of a column in one group of processes, which saves the time to start them."""
    _assert_equal(name, reference, results(column))


@pytest.mark.slow
@pytest.mark.time_limit(2 * _GROUP_SECONDS)
@pytest.mark.parametrize(("name", "column"), _parameters(workers=(2,)))
def test_row_alone(reference, tmp_path, name, column):
    """Each row in a group of processes of its own: it needs nothing that another left behind."""
    _assert_equal(name, reference, _run(column, tmp_path, [name], timeout=120))


def test_what_is_slow_or_long_exists():
    assert {*_SLOW_ROWS, *_LONG_ROWS, *_EVERYDAY} <= set(running.all_rows())
    assert {*_SLOW_COLUMNS, *_LONG_COLUMNS, *_EXTENDED_COLUMNS, *_EXTENDED_IN} <= set(COLUMNS)
    assert set().union(*_EXTENDED_IN.values()) <= set(_EVERYDAY)
    assert not {*_SLOW_ROWS, *_EVERYDAY} & {*_LONG_ROWS}


def test_every_mode_has_rows():
    rows = running.all_rows().values()
    for mode in MODES:
        assert sum(mode in row.modes for row in rows) > 30
