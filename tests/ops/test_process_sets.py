"""Process sets in 3 real worker processes: 0 and 2, 1 and 2, and 1 alone."""

import os

import pytest

from tests import set_values, workers
from tests.cluster import Cluster, describe, outcome_of, run_processes, run_workers
from tests.ops import lost_set_programs

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(620)

PROGRAM = os.path.join(os.path.dirname(__file__), "process_sets_programs.py")
SCENARIOS = [
    "start",
    "reductions",
    "values",
    "in_functions",
    "copies",
    "sparse",
    "gradients",
    "training",
    "numbers",
    "refusals",
    "adding",
    "disagreement",
]
SETS = {(0, 2): 1, (1, 2): 2, (1,): 3}


@pytest.fixture(scope="module")
def group():
    return workers.run(PROGRAM, SCENARIOS, 3)


def sets_of(rank):
    return [ranks for ranks in SETS if rank in ranks]


def test_what_a_set_says(group):
    for rank, (everyone, *sets) in enumerate(group["start"]):
        assert everyone == (0, 3, rank, True, (0, 1, 2))
        for ranks, found in zip(SETS, sets, strict=True):
            place = ranks.index(rank) if rank in ranks else None
            assert found == (SETS[ranks], len(ranks), place, rank in ranks, ranks)


def test_values_of_keras_are_those_of_the_members(group):
    for rank, (found, (kind, message)) in enumerate(group["values"]):
        set_values.check(rank, found, SETS)
        assert kind == "ValueError" and f"worker {rank} is not in" in message


def test_reductions_are_of_the_members(group):
    for rank, found in enumerate(group["reductions"]):
        assert set(found) == {*sets_of(rank), "all"}
        assert found["all"] == [6.0, 30.0]
        for ranks in sets_of(rank):
            firsts = [1.0 + each for each in ranks]
            product = firsts[0] * (firsts[1] if len(ranks) > 1 else 1)
            total = [sum(firsts), 10.0 * len(ranks)]
            assert found[ranks] == {
                "sum": total,
                "average": [total[0] / len(ranks), 10.0],
                "min": [min(firsts), 10.0],
                "max": [max(firsts), 10.0],
                "product": [product, 10.0 ** len(ranks)],
                "bf16": [total[0] / len(ranks), 10.0],
                "list": [total, [2 * each for each in total]],
            }


def test_traced_and_compiled(group):
    for rank, both in enumerate(group["in_functions"]):
        for sums, rows, copies, everyone in both:
            assert everyone == [6.0]
            assert sums == [[sum(1.0 + each for each in ranks)] for ranks in sets_of(rank)]
            assert rows == [[1.0 + each for each in ranks] for ranks in sets_of(rank)]
            assert copies == [[1.0 + ranks[-1]] for ranks in sets_of(rank)]


def test_copies(group):
    for rank, found in enumerate(group["copies"]):
        for ranks in sets_of(rank):
            place = ranks.index(rank)
            gathered = [each for each in ranks for _ in range(each + 1)]
            rows_of_five = [0.0, 1.0, 2.0, 3.0, 4.0]
            cut = {1: [(0, 5)], 2: [(0, 3), (3, 5)]}[len(ranks)][place]
            two = {1: [(0, 2)], 2: [(0, 1), (1, 2)]}[len(ranks)][place]
            three = {1: [(0, 3)], 2: [(0, 2), (2, 3)]}[len(ranks)][place]
            assert found[ranks] == {
                "gathered": gathered,
                "strings": [str(each).encode() for each in ranks],
                "grouped": [gathered, [each + 1 for each in gathered]],
                "from the last": ranks[-1],
                "sent to each": (
                    [each for each in ranks for _ in range(each + place)],
                    [each + place for each in ranks],
                ),
                "even": [[each] for each in ranks],
                "own rows": [len(ranks) * row for row in rows_of_five[slice(*cut)]],
                "own rows of two": [
                    [len(ranks) * row for row in rows_of_five[slice(*each)]]
                    for each in (two, three)
                ],
                "objects": [{"rank": each} for each in ranks],
                "object": ranks[-1],
            }


def test_indexed_slices(group):
    for rank, found in enumerate(group["sparse"]):
        for ranks in sets_of(rank):
            sums = {}
            for each in ranks:
                for index in (0, each):
                    sums[index] = sums.get(index, 0) + (1.0 + each) / len(ranks)
            indices, values = found[ranks]
            assert indices == sorted(sums)
            assert values == [[sums[index]] * 3 for index in indices]


def test_gradients_stay_among_the_members(group):
    for rank, found in enumerate(group["gradients"]):
        for ranks in sets_of(rank):
            weights = [1.0 + each for each in ranks]
            total, place, count = sum(weights), ranks.index(rank), len(ranks)

            def like(row_values):
                return [[value, value] for value in row_values]

            assert found[ranks, "sum"] == like([total] * count)
            assert found[ranks, "average"] == like([total / count] * count)
            assert found[ranks, "gather"] == like([total] * count)
            assert found[ranks, "broadcast"] == like([0.0 if place else total] * count)
            assert found[ranks, "alltoall"] == like(weights)
            assert found[ranks, "reducescatter"] == like(weights)


def test_training(group):
    for rank, (ranks, of_tape, by_hand, in_fit) in enumerate(group["training"]):
        mean = sum(1.0 + each for each in ranks) / len(ranks)
        assert ranks == ((1,) if rank == 1 else (0, 2)) and of_tape == [mean, mean]
        assert by_hand == pytest.approx([ranks[0] - 2 * mean] * 2)
        weight = by_hand[0]
        for _ in range(2):  # mse of 2 w against 0, of the same rows everywhere
            weight -= 4 * weight
        assert in_fit == pytest.approx([weight] * 2)


def test_operations_of_numbers(group):
    for rank, (found, error) in enumerate(group["numbers"]):
        included = [1, *(int(rank in ranks) for ranks in SETS)]
        assert found == list(zip([3, 2, 2, 1], included))
        assert error == ["ValueError", "there is no process set 9: add it on all workers first"]


def test_what_is_refused(group):
    for rank, found in enumerate(group["refusals"]):
        other = next(ranks for ranks in SETS if rank not in ranks) if rank != 1 else (0, 2)
        shown = ",".join(map(str, other)) if other != (1, 2) else "1-2"
        sentence = (
            f"worker {rank} is not in the process set of workers {shown}: call this where "
            "process_set.included() is true"
        )
        assert found["not a member"] == ["ValueError", sentence]
        assert found["no tape"] == ["ValueError", sentence]
        assert found["not in use"][0] == "ValueError"
        assert "workers 0-1 is not in use: call tf_byteps.add_process_set" in found["not in use"][1]
        assert found["a number"] == [
            "TypeError",
            "process_set must be a tf_byteps.ProcessSet, got 1",
        ]
        assert "rank in the job of a worker of the process set" in found["root"][1]
        assert "must not begin with 'workers{'" in found["name"][1]
        assert "servers hold one value for all workers" in found["async"][1]
        assert "waits for all of its workers" in found["backup"][1]
        assert all(found[each][0] == "ValueError" for each in ("no rank", "twice"))
        assert all(found[each][0] == "TypeError" for each in ("text", "fraction"))


def test_all_workers_add_the_same(group):
    for rank, found in enumerate(group["adding"]):
        kind, text = found["different"]
        assert kind == "ValueError"
        assert "all workers must add and remove the same process sets" in text
        own, other = (
            ("[0, 1]", "worker 0 adds that of workers [0]")
            if rank
            else ("[0]", "worker 1 adds that of workers [0, 1]")
        )
        assert f"worker {rank} adds that of workers {own}" in text and other in text
        assert "workers 0,2 is in use already" in found["known"][1]
        assert "has worker 7, and the job has 3 workers" in found["unknown"][1]
        assert found["total"] == 3.0 and found["number"] == 4
        assert found["removed"] == (True, False, None) and found["global"] is False
        assert "is not in use" in found["used after"][1]


def test_members_that_disagree_all_hear_of_it_and_go_on(group):
    for rank, found in enumerate(group["disagreement"]):
        for ranks in sets_of(rank):
            error, after = found[ranks]
            assert after == [float(len(ranks))] * 2
            if len(ranks) > 1:
                assert error[0] == "FailedPreconditionError" and "workers disagree" in error[1]


def test_another_session_has_sets_of_its_own():
    group = workers.run(PROGRAM, ["start", "again"], 3)
    for rank, (before, number, total) in enumerate(group["again"]):
        assert before == (None, None, None, None)
        assert number == 1 and total == (None if rank == 1 else 2.0)


def test_one_process():
    found = workers.run(PROGRAM, ["alone"], 0)["alone"]
    assert found == [(1.0, [5.0], 1, True)]


@pytest.mark.parametrize("returns", [False, True], ids=["lost", "and back"])
def test_a_lost_server_costs_no_sum(returns):
    env = {"BYTEPS_PARTITION_BYTES": "4096", "BYTEPS_ENABLE_IPC": "0"}
    steps = 1200 if returns else 400
    with Cluster(lost_set_programs.sums_of_sets, 3, 3, env, args=(steps, "begun")) as cluster:
        for worker in cluster.workers:
            worker.wait_for_output("begun", 200)
        for count, server in enumerate(cluster.servers[:2], 1):
            server.kill()
            cluster.scheduler.wait_for_output("training goes on with the other", count=count)
            if returns:
                cluster.replace(server)
                cluster.scheduler.wait_for_output("has been started again and gets", count=count)
        cluster.wait_for(cluster.workers, 200)
        outcomes = [worker.outcome() for worker in cluster.workers]
    assert [outcome.result for outcome in outcomes] == [1, 1, 2], describe(outcomes)


def test_a_lost_worker_is_an_error_in_all_sets():
    outcomes = run_processes(lost_set_programs.survive_a_worker, 3, 1, timeout=120)
    for label in ("worker 0", "worker 2"):
        kind, message = outcome_of(outcomes, label).result
        assert kind == "UnavailableError" and "worker 1" in message, describe(outcomes)


def test_who_is_in_no_set_may_leave():
    results = run_workers(lost_set_programs.leave_in_turn, 3, 1)
    assert results == [2.0 * sum(range(50)), None, 2.0 * sum(range(50))]
