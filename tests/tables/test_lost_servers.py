"""Servers that have rows of tables are killed (protocol rules 38 and 39).

The rows have LazyAdam, which keeps two states for each, and whose steps depend on their number.
"""

import contextlib
import time

import pytest

from tests.cluster import Cluster, describe, run_workers, wait_until
from tests.tables import lost_servers_programs as programs

pytestmark = pytest.mark.time_limit(420)


def _run(folder, servers, killed, epochs=1, waits=True):
    """What the workers return when these servers are killed after the first epoch."""
    env = {"BYTEPS_DETERMINISTIC": "1"}
    with Cluster(programs.train, 2, servers, env, [str(folder), epochs, waits]) as cluster:
        wait_until(
            lambda: (
                all((folder / f"trained_{rank}").exists() for rank in range(2))
                or any(worker.popen.poll() is not None for worker in cluster.workers)
            ),
            240,
        )
        for number in killed:
            cluster.servers[number].kill()
            cluster.servers[number].popen.wait()
            time.sleep(1)  # its loss is known before the next
        (folder / "go_on").touch()
        cluster.wait_for(cluster.workers, 240)
        outcomes = [process.outcome() for process in cluster.processes()]
    results = [each.result for each in outcomes if each.label.startswith("worker")]
    assert all(results), describe(outcomes)
    return results, describe(outcomes)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    (first, second), output = _run(tmp_path_factory.mktemp("undisturbed"), 2, [])
    assert first == second and first[0] == "no error", output
    return first[1]


@pytest.mark.extended
@pytest.mark.parametrize("killed", [0, 1])
def test_a_lost_server_changes_no_weight(tmp_path, undisturbed, killed):
    results, output = _run(tmp_path, 2, [killed])
    assert [digest for _, digest in results] == [undisturbed, undisturbed], output


@pytest.mark.extended
def test_nor_does_one_that_is_lost_in_the_middle_of_steps(tmp_path):
    folders = [tmp_path / name for name in ("undisturbed", "killed")]
    for folder in folders:
        folder.mkdir()
    expected, _ = _run(folders[0], 3, [], epochs=40, waits=False)
    results, output = _run(folders[1], 3, [1], epochs=40, waits=False)
    assert [digest for _, digest in results] == [expected[0][1]] * 2, output


def _await_event(cluster, server, text):
    """Waits until the scheduler says this of a server."""

    def is_said():
        lines = cluster.scheduler.output().splitlines()
        return any(f"server {server} " in line and text in line for line in lines)

    with contextlib.suppress(AssertionError):
        wait_until(is_said, 60)
    assert is_said(), describe([each.outcome() for each in cluster.processes()])


def replace(cluster, server):
    """Kills a server, and starts it again."""
    old = cluster.servers[server]
    old.kill()
    old.popen.wait()
    _await_event(cluster, server, "training goes on")
    cluster.replace(old)
    _await_event(cluster, server, "been started again")


def await_copies(cluster, times, tables=2, seconds=60):
    """Waits until worker 0 has copied the blocks of all tables so often."""
    worker = cluster.workers[0]
    text = "are on two servers again"
    wait_until(
        lambda: worker.output().count(text) == tables * times or worker.popen.poll(), seconds
    )
    assert worker.output().count(text) == tables * times, worker.output()


def _compare(folder, servers, harm):
    """Trains while `harm` is at work with the cluster, and as much undisturbed."""
    folders = [folder / name for name in ("harmed", "undisturbed")]
    for each in folders:
        each.mkdir()
    env = {"BYTEPS_DETERMINISTIC": "1"}
    with Cluster(programs.train_until_told, 2, servers, env, [str(folders[0])]) as cluster:
        wait_until(lambda: (folders[0] / "trained_0").exists(), 240)
        harm(cluster)
        epochs = int((folders[0] / "trained_0").read_text()) + 30  # more than any worker has begun
        (folders[0] / "told").write_text(str(epochs))
        (folders[0] / "told").rename(folders[0] / "epochs")
        cluster.wait_for(cluster.workers, 240)
        outcomes = [process.outcome() for process in cluster.processes()]
    results = [each.result for each in outcomes if each.label.startswith("worker")]
    (folders[1] / "epochs").write_text(str(epochs))
    expected = run_workers(programs.train_until_told, 2, servers, env, 240, [str(folders[1])])
    assert results == expected, describe(outcomes)


# Protocol rule 39.
def test_each_of_two_servers_is_lost_once(tmp_path):
    def harm(cluster):
        for server in range(2):
            replace(cluster, server)
            await_copies(cluster, server + 1)

    _compare(tmp_path, 2, harm)


@pytest.mark.extended
def test_a_third_server_gets_the_blocks_of_a_lost_one(tmp_path):
    """Two of three are lost, one after the other, and none is started again."""

    def harm(cluster):
        cluster.servers[0].kill()
        await_copies(cluster, 1)
        cluster.servers[1].kill()
        cluster.workers[0].wait_for_output("because a server is lost: they are copied when")

    _compare(tmp_path, 3, harm)


def test_a_table_that_has_lost_both_servers_of_a_block_says_so(tmp_path):
    results, output = _run(tmp_path, 3, [0, 1])
    for message, _ in results:
        assert "has lost rows with its servers: " in message, output
        assert "start the job again, and load the last checkpoint" in message
