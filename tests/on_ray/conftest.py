"""A real Ray cluster of three raylets on this machine. (A folder `ray` would hide Ray itself.)"""

import contextlib
import os
import warnings

import psutil
import pytest

from tests.cluster import ROOT, clean_environment, wait_until

NODES = 3
# Ray gives a raylet 30 s to start, which is too little on a very busy machine.
_ATTEMPTS = 12


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

    with environment():
        running = Cluster()
        try:
            add_node(running, include_dashboard=False)
            for _ in range(NODES - 1):
                add_node(running)
            ray.init(address=running.address, log_to_driver=True)
            yield running
        finally:
            ray.shutdown()
            running.shutdown()


@contextlib.contextmanager
def environment(**variables):
    """Variables of this process meanwhile, which those of Ray get."""
    kept = dict(os.environ)
    own = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0", **variables}
    os.environ.clear()
    os.environ.update(clean_environment(**own))
    os.environ["PYTHONPATH"] = str(ROOT)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


@pytest.fixture
def launcher(cluster):
    """The class."""
    from tf_byteps.ray import RayLauncher

    return RayLauncher


def add_node(cluster, **settings):
    """Adds a node of two processors."""
    for attempt in range(_ATTEMPTS):
        try:
            cluster.add_node(**{"num_cpus": 2, "object_store_memory": 80 << 20, **settings})
            return cluster.wait_for_nodes()
        except Exception:  # Ray raises no other kind
            if attempt == _ATTEMPTS - 1:
                raise


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
