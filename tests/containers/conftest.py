"""Real containers by podman, and images that are built for them from Debian's packages.

No registry is asked: the base is made by mmdebstrap, and the packages of Python are downloaded
here. All that podman stores is in build/containers.
"""

import os
import subprocess
import sys

import pytest

from tests.cluster import ROOT
from tests.containers.podman import Podman, make_base
from tests.debian import find_program

_WHEELS = ROOT / "build" / "containers" / "wheels"
_PYTHON = "3.11"  # bookworm's


@pytest.fixture(scope="session")
def podman():
    """See `Podman`; skips where containers cannot be started."""
    if os.geteuid() != 0:
        pytest.skip("these containers have addresses of their own, which only root may give them")
    for name in ("podman", "runc", "mmdebstrap"):
        find_program(name, "podman", "runc", "mmdebstrap", "netavark", "iptables")
    engine = Podman(ROOT / "build" / "containers")
    reason = make_base(engine)
    if reason:
        pytest.skip(reason)
    return engine


@pytest.fixture(scope="session")
def images(podman):
    """Sizes in bytes of the images of tf_byteps, by name: server, worker and example."""
    _collect_wheels()
    variables = {**podman.environment, "ENGINE": "podman", "TAG": "test"}
    offline = ["--network", "host", "--build-arg", "PIP_NO_INDEX=1"]
    options = [*offline, "--build-arg", f"BASE={podman.base}"]
    _run(["tools/build_containers.sh", str(_WHEELS), *options], variables)
    options = [*offline, "--build-arg", "BASE=localhost/tf_byteps-worker:test"]
    options += ["--build-arg", "PIP_FIND_LINKS=/wheels", "--volume", f"{_WHEELS}:/wheels:ro"]
    file = ["-f", "containers/example.Containerfile", "-t", "localhost/tf_byteps-example:test"]
    _run(["podman", "build", *options, *file, "examples"], variables)
    names = ("server", "worker", "example")
    return {name: podman.image_size(f"localhost/tf_byteps-{name}:test") for name in names}


def _collect_wheels():
    """The wheel of tf_byteps and those of all that it needs, in a folder of their own."""
    tag = _PYTHON.replace(".", "")
    found = sorted((ROOT / "dist").glob(f"tf_byteps-*-cp{tag}-*.whl"))
    if not found:
        pytest.skip("there is no wheel of tf_byteps in dist/: make test-containers builds it")
    _WHEELS.mkdir(parents=True, exist_ok=True)
    for old in _WHEELS.glob("tf_byteps-*.whl"):
        old.unlink()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q"]
    target = ["--only-binary", ":all:", "--python-version", _PYTHON, "-d", str(_WHEELS)]
    _run([*pip, *target, f"{found[-1]}[cpu,demo]"], os.environ)


def _run(command, variables):
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
