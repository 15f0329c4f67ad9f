"""RayLauncher on three raylets."""

import signal
import subprocess
import sys

import pytest

from tests.cluster import wait_until
from tests.on_ray import programs
from tests.on_ray.conftest import actors, add_node
from tf_byteps.errors import BytePSError, ConfigError

pytestmark = pytest.mark.slow

_DRIVER = """
import sys, time, ray, tf_byteps.ray
ray.init(address=sys.argv[1], log_to_driver=False)
def train():
    tf_byteps.init()
    time.sleep(600)
tf_byteps.ray.RayLauncher(workers=2, servers=1).run(train)
"""


def test_workers_and_servers(launcher):
    results = launcher(workers=4, servers=2).run(programs.train, args=[10])
    assert [result[:2] for result in results] == [(rank, 4) for rank in range(4)]
    assert {result[4] for result in results} == {46.0}


def test_servers_inside_the_workers(launcher):
    assert {r[4] for r in launcher(workers=2).run(programs.train, kwargs={"base": 1})} == {3.0}


def test_one_worker(launcher):
    assert launcher(workers=1).run(programs.train, [7]) == [(0, 1, 0, 1, 7.0)]


def test_keras(launcher):
    """All end with the weights of one process."""
    alone, one, other = *launcher(1).run(programs.fit), *launcher(2, servers=1).run(programs.fit)
    assert one == other
    assert one == pytest.approx(alone, rel=1e-5)


def test_a_worker_that_raises_is_the_cause(launcher):
    with pytest.raises(BytePSError) as caught:
        launcher(workers=3, servers=1).run(programs.raise_on_rank_1)
    assert str(caught.value).startswith("the job has failed: worker 1 on ")
    assert str(caught.value).endswith("ValueError: no such data")
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_worker_that_dies_is_the_cause(launcher):
    with pytest.raises(BytePSError, match=r"the job has failed: worker 1 on \S+ was lost: "):
        launcher(workers=3, servers=1).run(programs.die_on_rank_1)


def test_a_worker_that_never_joins(launcher):
    with pytest.raises(BytePSError, match="worker 1 returned before the job began"):
        launcher(workers=2, servers=1).run(programs.only_rank_0_joins)


def test_no_room(launcher):
    expected = (
        r"no room in 1 s for 7 times 1 CPU and 2 times 0.5 CPU \(PACK\); the cluster has 6 CPU, "
        r"of which 6 CPU is free"
    )
    with pytest.raises(ConfigError, match=expected):
        launcher(7, 2, cpus_per_server=0.5, placement_timeout=1).run(programs.train)


def test_a_node_that_dies(cluster, ray, launcher):
    """Its raylet is killed, and with it its worker."""
    victim = cluster.list_all_nodes()[-1].node_id
    with pytest.raises(BytePSError, match=r"the job has failed: worker \d on \S+ was lost: "):
        launcher(3, strategy="STRICT_SPREAD").run(programs.kill_the_raylet, [victim])
    add_node(cluster)
    assert launcher(3, strategy="STRICT_SPREAD").run(programs.train, [0])[2][:2] == (2, 3)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_end_of_the_program_ends_the_job(cluster, number):
    running = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, cluster.address], stderr=subprocess.DEVNULL
    )
    wait_until(lambda: len(actors()) == 4)
    running.send_signal(number)
    assert running.wait(60) != 0
