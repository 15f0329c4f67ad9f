"""Jobs in containers: the images of containers/, started as the manifests of bpslaunch say."""

import json
import re

import pytest
import yaml

from tests.cluster import ROOT, wait_until
from tests.containers.podman import Containers
from tests.launch.pods import bpslaunch, pods_of, secret_of

pytestmark = [pytest.mark.slow, pytest.mark.time_limit(1200)]

_WORKER = "localhost/tf_byteps-example:test"
_SERVER = "localhost/tf_byteps-server:test"
_LARGEST_SERVER = 120e6  # bytes
_SECONDS = 300  # machines may be busy
# Failures show soon.
_SOON = ("--env", "BYTEPS_HEARTBEAT_INTERVAL=1", "--env", "BYTEPS_HEARTBEAT_TIMEOUT=5")
_ONCE = ("--env", "BYTEPS_RESTART_TIMEOUT=0")
_TESTS = [f"--volume={ROOT / 'tests'}:/home/train/tests:ro"]
_EPOCHS = 6


@pytest.fixture
def containers(podman, images):
    with Containers(podman) as running:
        yield running


def pods(*command, options=()):
    """The pods of two workers and one server that bpslaunch prints, and the job's secret."""
    done = bpslaunch(
        *("-np", "2", "--servers", "1", "--dry-run", "kubernetes", "--name", "digits"),
        *("--image", _WORKER, "--server-image", _SERVER, *options, *command),
    )
    assert done.returncode == 0, done.stderr
    objects = list(yaml.safe_load_all(done.stdout))
    return pods_of(objects), secret_of(objects)


def _result(output):
    accuracy, loss = re.search(r"test accuracy ([\d.]+), test loss ([\d.]+)", output).groups()
    return float(accuracy), float(loss)


def test_servers_need_a_small_image(images, podman):
    for name, size in images.items():
        print(f"{name}: {size / 1e6:.1f} MB")
    assert images["server"] < _LARGEST_SERVER
    packages = podman.must(
        "run", "--rm", _SERVER, "ls", "/opt/tf_byteps/lib/python3.11/site-packages"
    )
    assert "zmq" in packages and "tensorflow" not in packages and "numpy" not in packages


def test_images_have_the_scheduler_and_the_launcher(images, podman):
    shown = podman.must("run", "--rm", _SERVER, "python", "-m", "tf_byteps.scheduler", "--help")
    assert "usage: python -m tf_byteps.scheduler" in shown
    shown = podman.must("run", "--rm", _WORKER, "bpslaunch", "--version")
    assert shown.startswith("tf_byteps ")
    assert podman.must("run", "--rm", _WORKER, "id", "-u").strip() != "0"


def test_two_workers_train_as_one_does(containers):
    alone = containers.start("alone", _WORKER, [], {}, ["--network", "none"])
    assert containers.wait([alone]) == [0], alone.output()
    running = containers.start_pods(*pods("python", "train.py"))
    codes = containers.wait(running)
    assert codes == [0, 0, 0], _outputs(running)
    accuracy, loss = _result(running[0].output())
    print(f"two containers: accuracy {accuracy}, loss {loss}; one: {_result(alone.output())}")
    assert accuracy > 0.9
    assert abs(loss - _result(alone.output())[1]) < 0.01


def test_a_job_ends_with_the_cause_when_a_container_is_killed(containers):
    command = ("python", "-m", "tests.containers.endless")
    running = containers.start_pods(*pods(*command, options=(*_SOON, *_ONCE)), _TESTS)
    for worker in running[:2]:
        worker.wait_for_output("training", _SECONDS)
    containers.kill(running[1])
    first, killed, server = containers.wait(running)
    output = running[0].output()
    assert killed == 137 and first == 1 and server == 1, output + running[2].output()
    assert "worker 1" in _errors(output)[0] and "without a goodbye" in _errors(output)[0]
    assert "worker 1" in _errors(running[2].output())[0]


def test_a_job_saves_when_a_pod_is_told_to_end(containers, tmp_path):
    """As when its node is drained: the pod has the 60 s that the manifest gives it."""
    tmp_path.chmod(0o777)
    command = ("python", "-m", "tests.launch.leaving_programs", "until_requeued", "/out")
    options = [*_TESTS, f"--volume={tmp_path}:/out"]
    running = containers.start_pods(*pods(*command, options=_ONCE), options)
    for worker in running[:2]:
        worker.wait_for_output("training", _SECONDS)
    containers.stop(running[1], grace=60)
    codes = containers.wait(running)
    assert codes == [143, 143, 0], _outputs(running)
    one, other = (json.loads((tmp_path / f"{rank}-0.json").read_text()) for rank in range(2))
    assert one == other and one["steps"] > 3
    assert list(tmp_path.glob("backup*/*"))


def _errors(output):
    return [line for line in output.splitlines() if "Error" in line or " ERROR " in line]


def test_an_elastic_job_goes_on_when_a_container_is_killed(containers, tmp_path):
    """Its pod comes again, and every sample was used as often as if nothing had happened."""
    tmp_path.chmod(0o777)  # the images' user is not root
    (tmp_path / "limit.txt").write_text("29")  # batches: training waits there
    progress = tmp_path / "progress.txt"
    command = ("python", "-m", "tests.elastic.training", "fit", "/out", str(_EPOCHS))
    job, secret = pods(*command, options=("--min-np", "1", *_SOON))
    options = [*_TESTS, f"--volume={tmp_path}:/out"]
    running = containers.start_pods(job, secret, options)

    def await_workers(number):
        _wait(lambda: re.search(rf"commit \d+ \S+ {number}\n$", progress.read_text()), running)

    _wait(progress.exists, running)
    await_workers(2)
    containers.kill(running[1])
    assert containers.wait([running.pop(1)]) == [137]
    await_workers(1)
    running.append(containers.start_pod(job, job[1], secret, options))
    await_workers(2)
    (tmp_path / "limit.txt").unlink()
    codes = containers.wait(running)
    assert codes == [0] * 4, _outputs(running)
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["least"], result["most"], result["size"]) == (_EPOCHS, _EPOCHS, 2)
    assert "going back to the last commit" in running[0].output()


def _wait(condition, running):
    """Waits until it is true, while all of these run."""

    def is_so():
        assert all(each.popen.poll() is None for each in running), _outputs(running)
        return condition()

    wait_until(is_so, _SECONDS)


def _outputs(running):
    return "\n".join(f"---- {each.label}\n{each.output()}" for each in running)
