"""`join` in 1, 2 and 3 real worker processes: workers whose data end at other places."""

import os

import pytest

from tests import workers
from tests.cluster import Cluster, describe, outcome_of, run_processes, run_workers
from tests.ops import join_programs
from tests.selection import some_extended

# One group of processes serves many tests: the first of them waits for it.
pytestmark = pytest.mark.time_limit(620)

PROGRAM = os.path.join(os.path.dirname(__file__), "join_programs.py")
SCENARIOS = ["start", "uneven", "uneven_the_other_way", "tape", "others", "sets", "refusals"]


@pytest.fixture(scope="module", params=some_extended([1, 2, 3], [2]), ids="{}workers".format)
def group(request):
    scenarios = SCENARIOS if request.param > 1 else ["start", "uneven", "refusals"]
    return workers.run(PROGRAM, scenarios, request.param)


def test_sums_go_on_with_zeros(group):
    for wrong, last, after in group["uneven"]:
        assert wrong == [] and last == group.size - 1
        assert after == [float(group.size)], "all take part again"


def test_it_can_be_called_again(group):
    if group.size == 1:
        return
    for wrong, last, after in group["uneven_the_other_way"]:
        assert wrong == [] and last == 0 and after == [float(group.size)]


def test_gradients_of_a_tape(group):
    if group.size == 1:
        return
    assert group["tape"] == [(True, group.size - 1)] * group.size


def test_what_does_not_go_on_says_so(group):
    if group.size == 1:
        return
    for rank, found in enumerate(group["others"]):
        assert found["last"] != 1
        if rank == 1:
            continue
        assert found["sum"] == [group.size - 1.0]
        for name in ("gather", "broadcast", "minimum", "alltoall", "rows"):
            kind, message = found[name]
            assert kind == "FailedPreconditionError"
            assert "worker 1 has joined and has no more data; until all workers" in message


def test_process_sets(group):
    if group.size == 1:
        return
    for rank, (found, last) in enumerate(group["sets"]):
        assert last == 0 and found == ([1.0, 1.0] if rank == 0 else None)


def test_in_a_function_it_is_refused(group):
    for sentence in group["refusals"]:
        assert "join waits for other workers: call it in eager code, after the loop" in sentence


def test_sums_in_rank_order():
    group = workers.run(PROGRAM, ["start", "uneven"], 3, BYTEPS_DETERMINISTIC="1")
    for wrong, last, after in group["uneven"]:
        assert wrong == [] and last == 2 and after == [3.0]


def test_rows_that_servers_add_up():
    group = workers.run(PROGRAM, ["start", "others"], 3, BYTEPS_ROW_SUM_WORKERS="1")
    for rank, found in enumerate(group["others"]):
        assert rank == 1 or found["rows"] == [[2.0, 2.0]]


def test_lost_servers_cost_no_sum():
    env = {"BYTEPS_PARTITION_BYTES": "4096", "BYTEPS_ENABLE_IPC": "0"}
    with Cluster(join_programs.disturbed, 3, 3, env, args=("begun",)) as cluster:
        cluster.workers[2].wait_for_output("begun 20")
        cluster.servers[0].kill()
        cluster.workers[2].wait_for_output("begun 160")  # worker 0 has joined
        cluster.servers[1].kill()
        cluster.wait_for(cluster.workers, 200)
        outcomes = [worker.outcome() for worker in cluster.workers]
    assert [outcome.result for outcome in outcomes] == [2, 2, 2], describe(outcomes)


def test_a_server_that_comes_back_knows_who_has_joined():
    env = {"BYTEPS_PARTITION_BYTES": "4096", "BYTEPS_ENABLE_IPC": "0"}
    with Cluster(join_programs.disturbed, 2, 2, env, args=("begun",)) as cluster:
        cluster.workers[1].wait_for_output("begun 160")  # worker 0 has joined
        cluster.servers[0].kill()
        cluster.servers[0].popen.wait()
        cluster.replace(cluster.servers[0])
        cluster.wait_for(cluster.workers, 200)
        outcomes = [worker.outcome() for worker in cluster.workers]
    assert [outcome.result for outcome in outcomes] == [1, 1], describe(outcomes)


def test_a_worker_that_leaves_without_joining():
    (kind, message), _ = run_workers(join_programs.join_without, 2, 1, args=["leaves"])
    assert kind == "FailedPreconditionError" and "worker 1" in message
    assert "has left the job, so that not all workers" in message


def test_a_worker_that_is_lost_meanwhile():
    outcomes = run_processes(join_programs.join_without, 2, 1, args=["lost"])
    kind, message = outcome_of(outcomes, "worker 0").result
    assert kind == "UnavailableError" and "worker 1" in message, describe(outcomes)
