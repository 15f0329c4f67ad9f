"""Elastic jobs on Ray: raylets are killed and come again."""

import pytest

from tests.on_ray import programs
from tests.on_ray.conftest import actors, add_node
from tests.on_ray.training import Training, is_right
from tf_byteps.errors import BytePSError, ConfigError

pytestmark = [pytest.mark.slow, pytest.mark.time_limit(1500)]


def test_a_killed_raylet_and_a_new_one(cluster, launcher, tmp_path):
    """The other worker goes on; the next node gets a new one; and the server is started again."""
    cluster.remove_node(cluster.list_all_nodes()[-1])
    job = launcher(2, 1, 1.5, cpus_per_server=0.5, strategy="SPREAD", min_workers=1)
    with Training(tmp_path, job) as training:
        training.await_workers(2)
        cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
        training.await_workers(1)
        add_node(cluster)
        training.await_workers(2)
        begins = training.begins()
        (server,) = [p for p in actors() if p.cmdline()[0].startswith("ray::Server")]
        server.kill()
        training.await_begins(begins + 2)
        training.await_workers(2)
        results, result = training.end()
    assert results == [0, 1]
    assert is_right(result, workers=2)


def test_all_that_take_part_return(launcher):
    results = launcher(2, servers=1, min_workers=2).run(programs.return_late)
    assert results == [(0, 2.0), (1, 2.0)]


def test_what_fails_too_often_is_not_started_again(launcher, caplog):
    with pytest.raises(BytePSError, match="worker 2 .*raised") as caught:
        launcher(1, min_workers=1, max_failures=3).run(programs.raise_at_once)
    assert isinstance(caught.value.__cause__, ValueError)
    assert "not started again after 3 failures" in caplog.text


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"min_workers": 3}, "min_workers=3: must be from 1 to workers=2"),
        ({"min_workers": 0}, "min_workers=0"),
        ({"min_workers": 1, "strategy": "STRICT_SPREAD"}, "must be PACK or SPREAD"),
        ({"min_workers": 1, "max_failures": -1}, "max_failures=-1"),
    ],
)
def test_wrong_arguments(launcher, arguments, message):
    with pytest.raises(ConfigError, match=message):
        launcher(2, **arguments)
