"""A real Ray cluster of three raylets on this machine. (A folder `ray` would hide Ray itself.)"""

import contextlib
import os
import warnings

import psutil
import pytest

from tests.cluster import ROOT, clean_environment, wait_until

NODES = 3


@pytest.fixture(scope="session")
def ray():
    """The module; skips the test where it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("ray", reason="make test-ray installs Ray")


@pytest.fixture(scope="module")
def cluster(ray):
    """Three nodes of two processors each; this process is connected to the first."""
    from ray.cluster_utils import Cluster

    kept = dict(os.environ)
    os.environ.clear()
    os.environ.update(clean_environment(RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS="0"))
    os.environ["PYTHONPATH"] = str(ROOT)
    node = {"num_cpus": 2, "object_store_memory": 80 << 20, "include_dashboard": False}
    running = Cluster(initialize_head=True, head_node_args=node)
    try:
        for _ in range(NODES - 1):
            running.add_node(**{**node, "include_dashboard": None})
        running.wait_for_nodes()
        ray.init(address=running.address, log_to_driver=True)
        yield running
    finally:
        ray.shutdown()
        running.shutdown()
        os.environ.clear()
        os.environ.update(kept)


@pytest.fixture(autouse=True)
def no_process_left(request):
    """Nothing of the job is left, and nothing reserved; Ray keeps idle processes of its own."""
    yield
    if "cluster" not in request.fixturenames:
        return
    ray = request.getfixturevalue("ray")
    wait_until(lambda: not actors())
    wait_until(lambda: ray.available_resources().get("CPU") == ray.cluster_resources()["CPU"])


def actors():
    """The processes of jobs; Ray gives them these titles."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            title = " ".join(process.cmdline())
            if title.startswith(("ray::Worker", "ray::Server", "ray::Scheduler", "ray::RayTrain")):
                found.append(process)
    return found
