"""Jobs over RDMA; `test_vm.py` runs these in its virtual machine.

Workers use the device rxe0; servers use rxe1 where there are two devices. One device moves packets
inside of itself, so that only with two of them what went over the network can be counted.
"""

import contextlib
import json
import pathlib
import re
import subprocess
import sys
import time

import psutil
import pytest

import tf_byteps.rdma
from tests.cluster import ROOT, Cluster, describe, wait_until
from tests.elastic.conftest import elastic, launch  # noqa: F401
from tests.engine import programs
from tests.rdma import jobs


def _transmitted(interface):
    path = pathlib.Path(f"/sys/class/net/{interface}/statistics/tx_bytes")
    return int(path.read_text())


def _packets(device):
    path = pathlib.Path(f"/sys/class/infiniband/{device}/ports/1/hw_counters/sent_pkts")
    return int(path.read_text())


def _run(cluster, timeout):
    outcomes = cluster.wait(timeout)
    assert all(outcome.code == 0 for outcome in outcomes), describe(outcomes)
    return [outcome.result for outcome in outcomes if outcome.label.startswith("worker")]


@pytest.mark.time_limit(480)
def test_sums(tmp_path):
    """Two workers and two servers: right sums, and not one byte of a payload over TCP."""
    before = {name: _transmitted(name) for name in ("lo", "veth0", "veth1")}
    packets = _packets("rxe0")
    with Cluster(jobs.sums, workers=2, servers=2, env=jobs.environment(tmp_path)) as cluster:
        results = _run(cluster, 400)
    sent = {name: _transmitted(name) - before[name] for name in before}
    payload = jobs.ROUNDS * jobs.ELEMENTS * 4
    for count, counters in results:
        assert count == (len(programs.DTYPES) + 4) * 8
        jobs.check_worker(counters)
        assert counters["rdma_bytes_sent"] >= payload
    for rank in range(2):
        jobs.check_server(tmp_path / f"server.{rank}.json")
    assert _packets("rxe0") - packets > 2 * payload // 4096
    # TCP has carried what the scheduler says, and heartbeats.
    assert sent["lo"] < payload // 10, sent
    if len(jobs.DEVICES) == 2:
        assert sent["veth0"] > 2 * payload and sent["veth1"] > 2 * payload, sent
    print({**sent, "payload of a worker": payload})


@pytest.mark.parametrize("victim", ["worker", "server"])
def test_a_killed_process_is_an_error_for_the_others(victim):
    with Cluster(jobs.exchange_for_ever, workers=2, servers=1, env=jobs.environment()) as cluster:
        for worker in cluster.workers:
            worker.wait_for_output("begun", 100)
        time.sleep(3)  # in the middle of many writes
        processes = cluster.workers if victim == "worker" else cluster.servers
        processes[0].kill()
        began = time.monotonic()
        survivor = cluster.workers[1]
        with contextlib.suppress(subprocess.TimeoutExpired):
            survivor.popen.wait(60)
        outcome = survivor.outcome()
        assert outcome.code == 0, outcome.output
        assert outcome.result[0] == "UNAVAILABLE", outcome.result
        assert f"{victim} 0" in outcome.result[1], outcome.result
        print(f"known after {time.monotonic() - began:.1f} s: {outcome.result[1]}")


def test_an_elastic_job_goes_on_without_a_killed_worker(elastic):  # noqa: F811
    """Its sums are right; so are they with the one that comes in its place."""
    packets = _packets("rxe0")
    variables = {**jobs.environment()("worker 0"), "BYTEPS_HEARTBEAT_TIMEOUT": "20"}
    job = elastic("--min-np", "1", "--max-np", "2", "--servers", "1", **variables)
    job.running.wait_for("of 2 from 0", 2, 100)
    job.kill(0)
    began = time.monotonic()
    job.running.wait_for("rank 0 of 1 from", 1, 100)
    print(f"the other one went on after {time.monotonic() - began:.1f} s")
    job.running.wait_for("member 2: rank 1 of 2 from", 1, 100)
    code, output = job.finish(100)
    assert code == 0, output
    assert output.count("finished with 2") == 2, output
    assert _packets("rxe0") - packets > 100


@pytest.mark.time_limit(600)
def test_training(tmp_path):
    """A whole training of examples/demo_training.py on two workers and a server."""
    launcher = [sys.executable, "-m", "tf_byteps.launch", "-np", "2", "--servers", "1"]
    example = [sys.executable, str(ROOT / "examples" / "demo_training.py")]
    variables = {**jobs.environment(tmp_path)("server 0"), "BYTEPS_RDMA_DEVICES": "rxe0"}
    settings = [word for name, value in variables.items() for word in ("env", f"{name}={value}")]
    command = [*settings, *launcher, *example, "--epochs", "5", "--report", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=580)
    reports = [json.loads((tmp_path / f"worker-{rank}.json").read_text()) for rank in range(2)]
    assert all(report["test accuracy"] > 0.9 for report in reports), reports
    jobs.check_server(tmp_path / "server.0.json")


def test_the_check_between_hosts():
    """`python -m tf_byteps.rdma`, which goes by pyverbs."""
    command = [sys.executable, "-m", "tf_byteps.rdma"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "rxe0 port 1: ACTIVE" in found.stdout and "RoCE v2" in found.stdout
    assert sorted(tf_byteps.rdma.get_device_list()) == jobs.DEVICES
    server = subprocess.Popen([*command, "--serve", "--device", jobs.SERVERS_DEVICE])
    try:
        # Looked up, not connected to: the check is served once.
        process = psutil.Process(server.pid)
        wait_until(lambda: any(c.status == "LISTEN" for c in process.net_connections()))
        client = [*command, "--connect", "127.0.0.1", "--device", "rxe0", "--megabytes", "16"]
        result = subprocess.run(client, capture_output=True, text=True, timeout=100)
        assert result.returncode == 0, result.stderr
        assert server.wait(30) == 0
    finally:
        server.kill()
    print(found.stdout, result.stdout)
    assert re.search(r"[1-9][0-9.]* MB/s written, [0-9.]+ us one way", result.stdout)
