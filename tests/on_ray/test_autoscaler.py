"""Ray's own autoscaler: its monitor starts further raylets, on this machine, for what waits."""

import contextlib
import json

import psutil
import pytest

from tests.cluster import free_port
from tests.on_ray import programs
from tests.on_ray.conftest import add_node, environment
from tests.on_ray.training import Training, is_right

pytestmark = [pytest.mark.slow, pytest.mark.time_limit(1500)]

# Ray's "fake multi-node" provider knows the first node by it.
_HEAD = "f" * 51 + "00000"


@pytest.fixture(scope="module")
def cluster(ray, tmp_path_factory):
    """A node of one processor, and at most two more when they are needed."""
    from ray.cluster_utils import Cluster

    address = f"{ray.util.get_node_ip_address()}:{free_port()}"
    path = tmp_path_factory.mktemp("autoscaler") / "config.json"
    path.write_text(json.dumps(_configuration(address)))
    with environment(RAY_FAKE_CLUSTER="1", AUTOSCALER_UPDATE_INTERVAL_S="1"):
        running = Cluster()
        try:
            add_node(
                running,
                num_cpus=1,
                include_dashboard=False,
                gcs_server_port=int(address.rpartition(":")[2]),
                autoscaling_config=str(path),
                env_vars={"RAY_OVERRIDE_NODE_ID_FOR_TESTING": _HEAD},
            )
            ray.init(address=running.address, log_to_driver=True)
            yield running
        finally:
            ray.shutdown()
            started = psutil.Process().children(recursive=True)
            running.shutdown()
            for process in started:  # the monitor's raylets outlive it
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()


def _configuration(address):
    provider = dict.fromkeys(
        ("use_node_id_as_ip", "disable_node_updaters", "disable_launch_config_check"), True
    )
    more = {"CPU": 1, "object_store_memory": 80 << 20}
    commands = ("initialization", "setup", "head_setup", "worker_setup")
    return {
        "cluster_name": "test",
        "max_workers": 2,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 30,
        "provider": {"type": "fake_multinode", "gcs_address": address, **provider},
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0},
            "more": {"resources": more, "node_config": {}, "min_workers": 0, "max_workers": 2},
        },
        "head_node_type": "ray.head.default",
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        "head_start_ray_commands": [],
        "worker_start_ray_commands": [],
        **{f"{name}_commands": [] for name in commands},
    }


def _nodes(ray):
    return sum(1 for node in ray.nodes() if node["Alive"])


def test_nodes_come_for_jobs(ray, launcher, tmp_path):
    """For a placement group, and for a worker of an elastic job for which nothing is reserved."""
    assert _nodes(ray) == 1
    results = launcher(2).run(programs.train, [0])
    assert [result[:2] for result in results] == [(0, 2), (1, 2)]
    assert _nodes(ray) == 2
    with Training(tmp_path, launcher(3, min_workers=2)) as training:
        training.await_workers(3)
        results, result = training.end()
    assert _nodes(ray) == 3
    assert results == [0, 1, 2] and is_right(result, workers=3)
