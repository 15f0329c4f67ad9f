"""Manifests that bpslaunch prints, checked against the API's schemas, and run as pods would be.

There is no cluster here. A pod is a network namespace with the variables that its manifest gives,
and finds the others by the names that a headless Service gives them.
"""

import pathlib
import shutil
import signal
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml
from kubeflow_trainer_api import models as kubeflow

from benchmarks.cluster import EmulatedCluster, why_unavailable
from benchmarks.sessions import within
from tests.cluster import ROOT, clean_environment
from tests.launch.pods import bpslaunch, pods_of, secret_of

_SECONDS = 120
_MODELS = {
    "JobSet": kubeflow.JobsetV1alpha2JobSet,
    "TrainingRuntime": kubeflow.TrainerV1alpha1TrainingRuntime,
    "TrainJob": kubeflow.TrainerV1alpha1TrainJob,
}


def manifests(kind, *command, workers=3, servers=2, options=()):
    done = bpslaunch(
        *("-np", str(workers), "--servers", str(servers), "--dry-run", kind, "--name", "digits"),
        *("--image", "example/train:1", *options, *command),
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.mark.parametrize("kind", ["kubernetes", "jobset", "trainjob"])
def test_every_object_is_what_the_api_takes(kind):
    options = ("--resources", "cpu=4,memory=8Gi,nvidia.com/gpu=1", "--env", "A=b c", "--tls")
    options = (*options, "--metrics-port", "9000")
    found = manifests(kind, "python", "train.py", options=options)
    assert len(found) == {"kubernetes": 4, "jobset": 2, "trainjob": 3}[kind]
    check_forms(found)


def test_the_scheduler_of_pods_listens_within_the_range():
    found = manifests("kubernetes", "true", options=("--ports", "20000-20063"))
    (container,) = found[2]["spec"]["template"]["spec"]["containers"]
    reported = {each["name"]: each.get("value") for each in container["env"]}
    assert (reported["DMLC_PS_ROOT_PORT"], reported["BYTEPS_PORTS"]) == ("20000", "20000-20063")


@pytest.mark.parametrize("kind", ["kubernetes", "jobset"])
def test_every_object_of_an_elastic_job_is_what_the_api_takes(kind):
    options = ("--min-np", "2", "--max-np", "5", "--metrics-port", "9000")
    found = manifests(kind, "python", "train.py", options=options)
    assert len(found) == {"kubernetes": 5, "jobset": 2}[kind]
    check_forms(found)
    workers = found[2]["spec"] if kind == "kubernetes" else None
    if kind == "jobset":
        workers = found[1]["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert workers["completions"] == 5 and workers["maxFailedIndexes"] == 3
    assert workers["successPolicy"] == {"rules": [{"succeededCount": 2}]}
    assert "backoffLimit" not in workers  # else all together may fail so often only


def check_forms(found):
    """Compares objects with what the API knows of them."""
    for each in found:
        model = _MODELS.get(each["kind"])
        if model is None:
            kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)
        else:
            # The models drop what they do not know.
            assert list(_missing(each, model.from_dict(each).to_dict())) == []


@pytest.mark.parametrize("kind", ["kubernetes", "jobset", "trainjob"])
def test_servers_may_have_an_image_of_their_own(kind):
    found = manifests(kind, "true", options=("--server-image", "example/server:1"))
    text = yaml.safe_dump_all(found)
    assert text.count("image: example/server:1") == 1
    assert text.count("image: example/train:1") >= 1


def _missing(given, kept, path=""):
    """Paths of what was given and not kept."""
    if isinstance(given, dict):
        for key, value in given.items():
            if not isinstance(kept, dict) or key not in kept:
                yield f"{path}.{key}"
            else:
                yield from _missing(value, kept[key], f"{path}.{key}")
    elif isinstance(given, list):
        assert len(given) == len(kept or []), path
        for number, pair in enumerate(zip(given, kept)):
            yield from _missing(*pair, f"{path}[{number}]")


def test_a_field_that_the_api_does_not_know_is_found():
    job = manifests("jobset", "true")[-1]
    job["spec"]["replicatedJobs"][0]["replica"] = 1
    kept = _MODELS["JobSet"].from_dict(job).to_dict()
    assert list(_missing(job, kept)) == [".spec.replicatedJobs[0].replica"]


def test_pods_need_nothing_but_their_manifest(tmp_path):
    reason = why_unavailable()
    if reason:
        pytest.skip(reason)
    program = (
        "import tf_byteps as bps; bps.init();"
        "print('ranks', bps.rank(), bps.size(), bps.allgather_object(bps.rank()))"
    )
    objects = manifests("kubernetes", sys.executable, "-c", program, servers=1)
    pods, secret = pods_of(objects), secret_of(objects)
    with EmulatedCluster(hosts=len(pods), gigabits=None) as cluster, _Names(cluster, pods):
        running = [
            _start(pod, namespace, address, secret)
            for pod, namespace, address in zip(pods, cluster.namespaces, cluster.addresses)
        ]
        outputs = [process.communicate(timeout=_SECONDS)[0] for process in running]
    assert [process.returncode for process in running] == [0] * len(pods), "\n".join(outputs)
    found = [output.splitlines()[-1] for output in outputs[:3]]
    assert found == [f"ranks {rank} 3 [0, 1, 2]" for rank in range(3)]


def test_a_pod_of_an_elastic_job_comes_again(tmp_path):
    reason = why_unavailable()
    if reason:
        pytest.skip(reason)
    stop = tmp_path / "stop"
    options = ("--min-np", "1", "--env", f"TESTS_STOP_FILE={stop}")
    command = (sys.executable, "-m", "tests.elastic.programs", "count")
    objects = manifests("kubernetes", *command, workers=2, servers=1, options=options)
    pods, secret = pods_of(objects), secret_of(objects)
    with EmulatedCluster(hosts=len(pods), gigabits=None) as cluster, _Names(cluster, pods):
        places = list(zip(pods, cluster.namespaces, cluster.addresses))
        running = [_start(*place, secret, BYTEPS_MEMBER=place[0].name) for place in places]
        _read_until(running[0], "of 2 from 0")
        running[1].kill()
        killed = running[1].communicate()[0]
        _read_until(running[0], "rank 0 of 1 from")
        running[1] = _start(*places[1], secret, BYTEPS_MEMBER="again")
        _read_until(running[1], "member again: rank 1 of 2 from")
        stop.touch()
        outputs = [process.communicate(timeout=_SECONDS)[0] for process in running]
    assert [process.returncode for process in running] == [0] * len(pods), "\n".join(outputs)
    assert "finished with 2" in outputs[0] and "finished" not in killed


# How workers end (`tests.elastic.programs`): the codes of their pods, from which Kubernetes decides
# whether a pod has failed.
_CODES = {
    "end 3": (3, 3),
    "end 3 one": (4, 3),
    "end kill one": (4, -signal.SIGKILL),
    "end raise": (1, 1),
    "end fall": (0, 0),
    "end 0": (0, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fixed", "elastic"])
@pytest.mark.parametrize(("program", "codes"), list(_CODES.items()))
def test_a_pod_ends_with_the_code_of_its_process(kind, program, codes):
    reason = why_unavailable()
    if reason:
        pytest.skip(reason)
    # Nobody comes again.
    soon = {
        "BYTEPS_RESTART_TIMEOUT": 0,
        "BYTEPS_ELASTIC_TIMEOUT": 3,
        "BYTEPS_HEARTBEAT_INTERVAL": 1,
    }
    options = [word for name, value in soon.items() for word in ("--env", f"{name}={value}")]
    options += ["--min-np", "1"] if kind == "elastic" else []
    command = (sys.executable, "-m", "tests.elastic.programs", *program.split())
    objects = manifests("kubernetes", *command, workers=2, servers=1, options=options)
    pods, secret = pods_of(objects), secret_of(objects)
    with EmulatedCluster(hosts=len(pods), gigabits=None) as cluster, _Names(cluster, pods):
        places = zip(pods, cluster.namespaces, cluster.addresses)
        running = [_start(*place, secret, BYTEPS_MEMBER=place[0].name) for place in places]
        outputs = [process.communicate(timeout=_SECONDS)[0] for process in running]
    found = [process.returncode for process in running]
    assert tuple(found[:2]) == codes, "\n".join(outputs)
    if kind == "elastic":  # where nobody has ended with 0, the server and the scheduler fail, too
        assert found[2:] == [0 if 0 in codes else 1] * 2, "\n".join(outputs)


def test_probes_get_an_answer_from_outside_of_the_pod(tmp_path):
    reason = why_unavailable()
    if reason:
        pytest.skip(reason)
    program = "import tf_byteps as bps; bps.init(); print('here', flush=True); input()"
    options = ("--metrics-port", "9000")
    command = (sys.executable, "-c", program)
    objects = manifests("kubernetes", *command, workers=2, servers=1, options=options)
    pods, secret = pods_of(objects), secret_of(objects)
    with EmulatedCluster(hosts=len(pods), gigabits=None) as cluster, _Names(cluster, pods):
        running = [
            _start(pod, namespace, address, secret)
            for pod, namespace, address in zip(pods, cluster.namespaces, cluster.addresses)
        ]
        assert "here" in running[0].stdout.readline()  # and so all have joined
        answers = [
            _probe(cluster.namespaces[-1 - number], address, pod.container)
            for number, (pod, address) in enumerate(zip(pods, cluster.addresses))
        ]
        for process in running:  # all before one is waited for, which waits for the others
            process.stdin.write("\n")
            process.stdin.flush()
        outputs = [process.communicate(timeout=_SECONDS)[0] for process in running]
    assert [process.returncode for process in running] == [0] * len(pods), "\n".join(outputs)
    assert all("tf_byteps_" in answer for answer in answers)


def _read_until(process, text):
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return
    raise AssertionError("".join(lines))


def _probe(namespace, address, container):
    """What the kubelet gets: it asks from elsewhere."""
    probe = container["livenessProbe"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    get = probe["httpGet"]
    url = f"http://{address}:{ports[get['port']]}{get['path']}"
    program = f"import urllib.request as r; print(r.urlopen({url!r}, timeout=10).read().decode())"
    command = [*within(namespace), sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _start(pod, namespace, address, secret, **more):
    command = pod.container["command"]
    if command[0] == "python":
        command = [sys.executable, *command[1:]]
    return subprocess.Popen(
        [*within(namespace), *command],
        cwd=ROOT,
        env=clean_environment(**pod.variables(address, secret), CUDA_VISIBLE_DEVICES="", **more),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


class _Names:
    """The hosts files with which `ip netns exec` replaces /etc/hosts, for a cluster's DNS."""

    def __init__(self, cluster, pods):
        self._folders = [pathlib.Path("/etc/netns") / name for name in cluster.namespaces]
        self._text = "127.0.0.1 localhost\n" + "".join(
            f"{address} {pod.name}.{pod.service} {pod.name}\n"
            for pod, address in zip(pods, cluster.addresses)
        )

    def __enter__(self):
        for folder in self._folders:
            folder.mkdir(parents=True)
            (folder / "hosts").write_text(self._text)

    def __exit__(self, *_):
        for folder in self._folders:
            shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--dry-run", "trainjob", "-np", "2", "--image", "i", "--min-np", "1"),
            "--dry-run trainjob: its number of workers is fixed: leave --min-np",
        ),
        (("-np", "2", "--image", "i", "--name", "Digits_1"), "--name Digits_1: Kubernetes takes"),
        (("-np", "2"), "--dry-run needs -np and --image"),
        (("-np", "2", "--image", "i", "--min-np", "3"), "--min-np 3 is more than the 2 workers"),
        (("--image", "i", "--min-np", "1"), "--dry-run needs -np and --image"),
        (("-np", "2", "--image", "i", "-H", "a:2"), "Kubernetes chooses the hosts"),
        (("-np", "2", "--image", "i", "--server-image", "s"), "--server-image needs --servers"),
        (("-np", "2", "--image", "i", "--resources", "cpu"), "'cpu' is not NAME=QUANTITY"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence):
    done = bpslaunch("--dry-run", "kubernetes", *arguments, "true")
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
