"""A Keras model trains wherever the workers are started: over ssh, or by hand with DMLC_ROLE."""

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.cluster import ROOT, clean_environment, free_port, outputs_of

PROGRAM = [sys.executable, str(ROOT / "examples" / "demo_training.py"), "--epochs", "3", "--report"]

pytestmark = pytest.mark.time_limit(320)


def assert_trained(folder):
    """Both workers report the same weights, on every sample once an epoch."""
    reports = [json.loads((folder / f"worker-{rank}.json").read_text()) for rank in range(2)]
    weights = [np.load(folder / f"worker-{rank}.npz") for rank in range(2)]
    for name in weights[0].files:
        np.testing.assert_array_equal(weights[0][name], weights[1][name])
    for report in reports:
        assert report["workers"] == 2
        assert report["test accuracy"] > 0.8
    for epoch in zip(*(report["samples"] for report in reports), strict=True):
        assert sorted(sum(epoch, [])) == list(range(1, reports[0]["training samples"] + 1))


def test_over_ssh(launch, sshd, tmp_path):
    hosts = "127.0.0.2:1,127.0.0.3:1"
    running = launch("-H", hosts, "--servers", "1", *sshd.options, *PROGRAM, str(tmp_path))
    assert running.wait(100) == 0, running.out + running.err
    assert_trained(tmp_path)


@pytest.mark.long
def test_begun_by_hand(tmp_path):
    place = {
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(free_port()),
        "DMLC_NUM_WORKER": "2",
        "DMLC_NUM_SERVER": "1",
    }

    def start(command, **variables):
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=clean_environment(**place, **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    processes = [
        start([*PROGRAM, str(tmp_path)], DMLC_ROLE="worker", DMLC_WORKER_ID=str(number))
        for number in range(2)
    ]
    processes += [
        start([sys.executable, "-m", f"tf_byteps.{role}"], DMLC_ROLE=role)
        for role in ("server", "scheduler")
    ]
    outputs = [output for output, _ in outputs_of(processes, timeout=300)]
    assert [process.returncode for process in processes] == [0, 0, 0, 0], "\n".join(outputs)
    assert_trained(tmp_path)
