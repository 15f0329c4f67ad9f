"""Servers that have rows of tables are killed (protocol rules 38 and 39)."""

import contextlib
import hashlib
import pathlib
import time

import pytest

from tests.cluster import Cluster, describe, run_workers, wait_until

pytestmark = pytest.mark.time_limit(420)


def _train(folder, epochs, waits):
    """Trains an epoch, waits to be told, and trains on. Returns a digest of all weights."""
    import tf_byteps
    from tests.tables import on_servers_programs as programs

    tf_byteps.init()
    with tf_byteps.BytePSStrategy().scope():
        model = programs.made(programs.on_servers, "Adagrad")
        programs.fit(model, 1)
        pathlib.Path(folder, f"trained_{tf_byteps.rank()}").touch()
        while waits and not pathlib.Path(folder, "go_on").exists():
            time.sleep(0.02)
        message = "no error"
        try:
            programs.fit(model, epochs)
        except Exception as error:
            message = str(error)
            return message, ""
        tables = model.get_layer("tables").get_embedding_tables()
        weights = [*tables.values(), *model.get_layer("hidden").get_weights()]
        digest = hashlib.sha256(b"".join(each.tobytes() for each in weights)).hexdigest()
    return message, digest


def _run(folder, servers, killed, epochs=1, waits=True):
    """What the workers return when these servers are killed after the first epoch."""
    env = {"BYTEPS_DETERMINISTIC": "1"}
    with Cluster(_train, 2, servers, env, [str(folder), epochs, waits]) as cluster:
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


@pytest.mark.parametrize("killed", [0, 1])
def test_a_lost_server_changes_no_weight(tmp_path, undisturbed, killed):
    results, output = _run(tmp_path, 2, [killed])
    assert [digest for _, digest in results] == [undisturbed, undisturbed], output


def test_nor_does_one_that_is_lost_in_the_middle_of_steps(tmp_path):
    folders = [tmp_path / name for name in ("undisturbed", "killed")]
    for folder in folders:
        folder.mkdir()
    expected, _ = _run(folders[0], 3, [], epochs=40, waits=False)
    results, output = _run(folders[1], 3, [1], epochs=40, waits=False)
    assert [digest for _, digest in results] == [expected[0][1]] * 2, output


def _train_in_stages(folder, stages):
    """Trains epochs, and after each waits to be told to go on. Returns a digest of all weights."""
    import tf_byteps
    from tests.tables import on_servers_programs as programs

    tf_byteps.init()
    with tf_byteps.BytePSStrategy().scope():
        model = programs.made(programs.on_servers, "Adagrad")
        for stage in range(stages):
            programs.fit(model, 1)
            pathlib.Path(folder, f"trained_{stage}_{tf_byteps.rank()}").touch()
            while not pathlib.Path(folder, f"go_on_{stage}").exists():
                time.sleep(0.02)
        tables = model.get_layer("tables").get_embedding_tables()
        weights = [*tables.values(), *model.get_layer("hidden").get_weights()]
    return hashlib.sha256(b"".join(each.tobytes() for each in weights)).hexdigest()


def _run_in_stages(folder, servers, stages, between):
    """Calls `between` with the cluster after each stage. Returns what the workers return."""
    env = {"BYTEPS_DETERMINISTIC": "1"}
    with Cluster(_train_in_stages, 2, servers, env, [str(folder), stages]) as cluster:
        for stage in range(stages):
            wait_until(
                lambda stage=stage: (
                    all((folder / f"trained_{stage}_{rank}").exists() for rank in range(2))
                    or any(worker.popen.poll() is not None for worker in cluster.workers)
                ),
                240,
            )
            between(cluster, stage)
            (folder / f"go_on_{stage}").touch()
        cluster.wait_for(cluster.workers, 240)
        outcomes = [process.outcome() for process in cluster.processes()]
    results = [each.result for each in outcomes if each.label.startswith("worker")]
    assert all(results), describe(outcomes)
    return results, describe(outcomes)


def _await_event(cluster, server, text):
    """Waits until the scheduler says this of a server."""

    def is_said():
        lines = cluster.scheduler.output().splitlines()
        return any(f"server {server} " in line and text in line for line in lines)

    with contextlib.suppress(AssertionError):
        wait_until(is_said, 60)
    assert is_said(), describe([each.outcome() for each in cluster.processes()])


def _replace(cluster, server):
    """Kills a server, and starts it again."""
    old = cluster.servers[server]
    old.kill()
    old.popen.wait()
    _await_event(cluster, server, "training goes on")
    cluster.replace(old)
    _await_event(cluster, server, "been started again")


def _await_copies(cluster, times):
    """Waits until worker 0 has copied the blocks of both tables so often."""
    worker = cluster.workers[0]
    text = "are on two servers again"
    wait_until(lambda: worker.output().count(text) == 2 * times or worker.popen.poll(), 60)
    assert worker.output().count(text) == 2 * times, worker.output()


STAGES = 5


@pytest.fixture(scope="module")
def in_stages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("in_stages")
    (first, second), output = _run_in_stages(folder, 2, STAGES, lambda cluster, stage: None)
    assert first == second, output
    return first


# Protocol rule 39.
def test_each_of_two_servers_is_lost_once(tmp_path, in_stages):
    def between(cluster, stage):
        if stage % 2 == 0 and stage < 4:
            _replace(cluster, stage // 2)
        elif stage % 2 == 1:
            _await_copies(cluster, stage // 2 + 1)

    results, output = _run_in_stages(tmp_path, 2, STAGES, between)
    assert results == [in_stages, in_stages], output


def test_a_third_server_gets_the_blocks_of_a_lost_one(tmp_path):
    """Two of three are lost, one after the other, and none is started again."""

    def between(cluster, stage):
        if stage in (0, 2):
            cluster.servers[stage // 2].kill()
            cluster.servers[stage // 2].popen.wait()
        if stage == 1:
            _await_copies(cluster, 1)

    folders = [tmp_path / name for name in ("undisturbed", "killed")]
    for folder in folders:
        folder.mkdir()
    expected, _ = _run_in_stages(folders[0], 3, 4, lambda cluster, stage: None)
    results, output = _run_in_stages(folders[1], 3, 4, between)
    assert results == expected, output
    assert "are on one server only, because a server is lost: they are copied when" in output


def _train_until_told(folder):
    """Trains as many epochs as the file "epochs" says, as soon as it is there. Returns a digest."""
    import tf_byteps
    from tests.tables import on_servers_programs as programs

    tf_byteps.init()
    epochs, told = 0, pathlib.Path(folder, "epochs")
    with tf_byteps.BytePSStrategy().scope():
        model = programs.made(programs.on_servers, "Adagrad")
        while not told.exists() or epochs < int(told.read_text()):
            programs.fit(model, 1)
            epochs += 1
            pathlib.Path(folder, f"trained_{tf_byteps.rank()}").write_text(str(epochs))
        tables = model.get_layer("tables").get_embedding_tables()
    digest = hashlib.sha256(b"".join(each.tobytes() for each in tables.values())).hexdigest()
    return epochs, digest


def test_each_of_two_servers_is_lost_once_in_the_middle_of_steps(tmp_path):
    folders = [tmp_path / name for name in ("undisturbed", "killed")]
    for folder in folders:
        folder.mkdir()
    env = {"BYTEPS_DETERMINISTIC": "1"}
    with Cluster(_train_until_told, 2, 2, env, [str(folders[1])]) as cluster:
        wait_until(lambda: (folders[1] / "trained_0").exists(), 240)
        for server in range(2):
            _replace(cluster, server)
            _await_copies(cluster, server + 1)
        reached = int((folders[1] / "trained_0").read_text())
        (folders[1] / "told").write_text(str(reached + 50))  # more than any worker has begun
        (folders[1] / "told").rename(folders[1] / "epochs")
        cluster.wait_for(cluster.workers, 240)
        outcomes = [process.outcome() for process in cluster.processes()]
    results = [each.result for each in outcomes if each.label.startswith("worker")]
    (folders[0] / "epochs").write_text(str(reached + 50))
    expected = run_workers(_train_until_told, 2, 2, env, 240, [str(folders[0])])
    assert results == expected, describe(outcomes)


def test_a_table_that_has_lost_both_servers_of_a_block_says_so(tmp_path):
    results, output = _run(tmp_path, 3, [0, 1])
    for message, _ in results:
        assert "has lost rows with its servers: " in message, output
        assert "start the job again, and load the last checkpoint" in message
