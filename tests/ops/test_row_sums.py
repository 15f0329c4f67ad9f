"""Rows of `tf.IndexedSlices` that servers add up, in 1, 2, 3 and 4 real worker processes."""

import os

import numpy as np
import pytest

from tests import workers
from tests.selection import some_extended

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(620)

PROGRAM = os.path.join(os.path.dirname(__file__), "row_sums_programs.py")
SCENARIOS = [
    "start",
    "operations",
    "as_gathered",
    "in_functions",
    "tables",
    "cast",
    "refused_by_one",
    "in_a_codec",
    "disagreements",
    "gradients",
    "bytes_of_a_worker",
]
ROW_SUMS = {"BYTEPS_ROW_SUM_WORKERS": "1"}


@pytest.fixture(
    scope="module", params=some_extended([1, 2, 3, 4], [1, 2, 4]), ids="{}workers".format
)
def group(request):
    return workers.run(PROGRAM, SCENARIOS, request.param, **ROW_SUMS)


def test_sums_are_what_a_gather_gives(group):
    """Bit for bit: both add in rank order."""
    assert group["start"] == [(rank, group.size) for rank in range(group.size)]
    for compared, wrong in group["as_gathered"]:
        assert compared == 88 and wrong == []


def test_in_a_function(group):
    assert group["in_functions"] == [[]] * group.size
    assert group["operations"] == [["BytePSRowSum"]] * group.size


def test_rows_of_any_number_of_axes(group):
    for found in group["tables"]:
        for (indices, dense), shape in zip(found, ([2], [2, 3, 4]), strict=True):
            expected = np.zeros([6, *shape[1:]])
            expected[[1, 4]] = group.size
            assert indices == [1, 4] and (dense == expected).all()


def test_rows_of_16_bits(group):
    """Servers add in float32 what has been rounded, and round the sum."""
    for found in group["cast"]:
        third = {"fp16": np.float32(np.float16(1 / 3)), "bf16": np.float32(0.333984375)}
        for form, result in found.items():
            for row, count in zip(result, ((group.size + 1) // 2, group.size // 2)):
                np.testing.assert_allclose(row, third[form] * count, rtol=2**-8)
                assert np.unique(row).size == 1


def test_wrong_indices_end_the_round_of_all(group):
    for rank, errors in enumerate(group["refused_by_one"]):
        for case, index in (("negative", -3), ("beyond the table", 9)):
            _, message = errors[case]
            said = f"index {index} is not a row of a table of 9 rows"
            assert said in message, message
            assert rank == 0 or "worker 0" in message


def test_rows_in_a_codec_are_gathered(group):
    """PowerSGD leaves rows as they are, so that servers can add them up."""
    for results, operations in group["in_a_codec"]:
        np.testing.assert_allclose(results, [[[2.0 * group.size] * 64]] * 2, rtol=2**-7)
        assert operations == [
            ["BytePSDecodeRows", "BytePSEncodeRows", "BytePSGather"],
            ["BytePSRowSum"],
        ]


def test_workers_that_disagree(group):
    for kinds, widths in group["disagreements"]:
        if group.size == 1:
            assert kinds is None and widths is None
            continue
        assert "rowsum" in kinds[1] and "gather" in kinds[1]
        assert "float32[?,3] rowsum" in widths[1] and "float32[?,2] rowsum" in widths[1]


def test_gradients_come_from_all_workers(group):
    ranks = sum(range(1, group.size + 1))
    for rank, found in enumerate(group["gradients"]):
        assert found["sum"] == [[rank * ranks], [9.0 * ranks]]
        np.testing.assert_allclose(found["average"], np.array(found["sum"]) / group.size)


@pytest.mark.extended
@pytest.mark.parametrize("size", [2, 3])
def test_fit_gives_the_same_weights(size):
    """Bit for bit, where dense gradients of three workers are added up in rank order, too."""
    settings = {**ROW_SUMS, "BYTEPS_DETERMINISTIC": "1"}
    group = workers.run(PROGRAM, ["start", "fit"], size, **settings)
    assert group["fit"] == [True] * size


@pytest.mark.parametrize(
    ("size", "setting", "exchange"),
    [
        (2, "3", "BytePSGather"),
        pytest.param(2, "2", "BytePSRowSum", marks=pytest.mark.extended),
        pytest.param(3, "3", "BytePSRowSum", marks=pytest.mark.extended),
        pytest.param(3, "0", "BytePSGather", marks=pytest.mark.extended),
    ],
)
def test_the_number_of_workers_decides(size, setting, exchange):
    group = workers.run(PROGRAM, ["start", "operations"], size, BYTEPS_ROW_SUM_WORKERS=setting)
    assert group["operations"] == [[exchange]] * size


def test_bytes_are_those_of_the_formula(group):
    """A worker sends its rows once, and receives the union once: docs/compression.md."""
    if group.size == 1:
        return  # nothing travels
    for found in group["bytes_of_a_worker"]:
        assert found == {"up": pytest.approx(1, rel=0.02), "down": pytest.approx(1, rel=0.02)}


@pytest.fixture(
    scope="module", params=some_extended([2, 3, 4], [2, 4]), ids="{}workers by default".format
)
def default_group(request):
    scenarios = [
        "start",
        "operations_by_default",
        'as_gathered={"expected_way": "choice"}',
        "in_functions",
        "tables",
        "cast",
        "refused_by_one",
        "gradients",
        "chosen_ways",
        "choices_after_an_error",
    ]
    return workers.run(PROGRAM, scenarios, request.param)


def test_by_default_the_first_rows_decide(default_group):
    _check_choices(default_group)


def test_by_default_two_workers_gather():
    _check_choices(workers.run(PROGRAM, ["start", "chosen_ways"], 2))


def _check_choices(group):
    size = group.size
    # Of 12 rows of each worker: 12 different ones; 6 and 6 for each; 12 for each.
    by_name = {"shared": size >= 3, "half": size >= 3, "own": False}
    for of_size, is_equal, counts in group["chosen_ways"]:
        assert of_size == size and is_equal == dict.fromkeys(by_name, True)
        before = [counts[0][0] - by_name["shared"], counts[0][1] - (not by_name["shared"])]
        for count, sums in zip(counts, by_name.values(), strict=True):
            before[not sums] += 1
            assert list(count) == before, "all workers choose the same"
    assert group["chosen_ways"] == [group["chosen_ways"][0]] * size


def test_by_default_the_bits_are_those_of_a_gather(default_group):
    scenario = 'as_gathered={"expected_way": "choice"}'
    for compared, wrong in default_group[scenario]:
        assert compared == 88 and wrong == []
    assert default_group["in_functions"] == [[]] * default_group.size
    assert default_group["operations_by_default"] == [["BytePSRowSum"]] * default_group.size


def test_by_default_an_error_lets_all_choose_anew(default_group):
    said = "index 9 is not a row"
    for found in default_group["choices_after_an_error"]:
        assert found == [None, None, None, said, None, None]
    for rank, errors in enumerate(default_group["refused_by_one"]):
        for case in ("negative", "beyond the table"):
            assert rank == 0 or "worker 0" in errors[case][1]


def test_by_default_gradients_come_from_all_workers(default_group):
    test_gradients_come_from_all_workers(default_group)
    test_rows_of_16_bits(default_group)
    test_rows_of_any_number_of_axes(default_group)


def test_by_default_fit_gives_the_same_weights():
    group = workers.run(PROGRAM, ["start", "fit"], 3, BYTEPS_DETERMINISTIC="1")
    assert group["fit"] == [True] * 3
