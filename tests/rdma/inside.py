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

import numpy as np
import psutil
import pytest

import tf_byteps
import tf_byteps.rdma
from tests.cluster import ROOT, Cluster, describe, wait_until
from tests.engine import programs
from tf_byteps import _engine

_DEVICES = sorted(path.name for path in pathlib.Path("/sys/class/infiniband").glob("*"))
_SERVERS_DEVICE = _DEVICES[-1]
# The machine has two slow processors, and everything happens on them.
_PATIENCE = {
    "BYTEPS_CONNECT_TIMEOUT": "60",
    "BYTEPS_RENDEZVOUS_TIMEOUT": "900",
    "BYTEPS_OPERATION_TIMEOUT": "120",
    "BYTEPS_HEARTBEAT_TIMEOUT": "60",
}
ELEMENTS = 500_000
ROUNDS = 3


def _environment(folder=None):
    def of(label):
        role = label.split()[0]
        device = _SERVERS_DEVICE if role == "server" else "rxe0"
        # Else the processes of this one machine would read each other's memory.
        env = {**_PATIENCE, "BYTEPS_VAN": "rdma", "BYTEPS_ENABLE_IPC": "0"}
        if role != "scheduler":
            env["BYTEPS_RDMA_DEVICES"] = device
        if folder is not None and role == "server":
            env["BYTEPS_SERVER_STATS_FILE"] = str(folder / "server.json")
        return env

    return of


def sums():
    """Sums of every type and size, then of a large tensor; this worker's counters."""
    count = programs.sums()
    rank, size = tf_byteps.rank(), tf_byteps.size()
    given = np.arange(ELEMENTS, dtype=np.float32) % 1000 + rank
    expected = size * (np.arange(ELEMENTS, dtype=np.float32) % 1000) + sum(range(size))
    for _ in range(ROUNDS):
        result = programs.start(given, name="large").wait(100)
        np.testing.assert_array_equal(result, expected)
    counters = _engine.worker_counters()
    tf_byteps.shutdown()
    return [count, counters]


def exchange_for_ever():
    tf_byteps.init()
    given = np.ones(ELEMENTS, np.float32)
    print("begun", flush=True)
    while True:
        try:
            programs.start(given, name="large").wait(100)
        except _engine.EngineError as error:
            return [error.code, str(error)]


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


def _check_worker(counters):
    """All that was pushed and received went by RDMA."""
    assert counters["rdma_bytes_sent"] == counters["pushed_bytes"] > 0
    assert counters["rdma_bytes_received"] == counters["received_bytes"] > 0


def _check_server(path):
    counters = json.loads(path.read_text())
    assert counters["van"]["rdma_bytes_received"] == counters["pushed_bytes"] > 0
    assert counters["van"]["rdma_bytes_sent"] == counters["replied_bytes"] > 0


@pytest.mark.time_limit(480)
def test_sums(tmp_path):
    """Two workers and two servers: right sums, and not one byte of a payload over TCP."""
    before = {name: _transmitted(name) for name in ("lo", "veth0", "veth1")}
    packets = _packets("rxe0")
    with Cluster(sums, workers=2, servers=2, env=_environment(tmp_path)) as cluster:
        results = _run(cluster, 400)
    sent = {name: _transmitted(name) - before[name] for name in before}
    payload = ROUNDS * ELEMENTS * 4
    for count, counters in results:
        assert count == (len(programs.DTYPES) + 4) * 8
        _check_worker(counters)
        assert counters["rdma_bytes_sent"] >= payload
    for rank in range(2):
        _check_server(tmp_path / f"server.{rank}.json")
    assert _packets("rxe0") - packets > 2 * payload // 4096
    # TCP has carried what the scheduler says, and heartbeats.
    assert sent["lo"] < payload // 10, sent
    if len(_DEVICES) == 2:
        assert sent["veth0"] > 2 * payload and sent["veth1"] > 2 * payload, sent
    print({**sent, "payload of a worker": payload})


@pytest.mark.parametrize("victim", ["worker", "server"])
def test_a_killed_process_is_an_error_for_the_others(victim):
    with Cluster(exchange_for_ever, workers=2, servers=1, env=_environment()) as cluster:
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


@pytest.mark.time_limit(1100)
def test_training(tmp_path):
    """A whole training of examples/keras_digits.py on two workers and a server."""
    launch = [sys.executable, "-m", "tf_byteps.launch", "-np", "2", "--servers", "1"]
    example = [sys.executable, str(ROOT / "examples" / "keras_digits.py")]
    variables = {**_environment(tmp_path)("server 0"), "BYTEPS_RDMA_DEVICES": "rxe0"}
    settings = [word for name, value in variables.items() for word in ("env", f"{name}={value}")]
    command = [*settings, *launch, *example, "--epochs", "8", "--report", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=1000)
    reports = [json.loads((tmp_path / f"worker-{rank}.json").read_text()) for rank in range(2)]
    assert all(report["test accuracy"] > 0.9 for report in reports), reports
    _check_server(tmp_path / "server.0.json")


def test_the_check_between_hosts():
    """`python -m tf_byteps.rdma`, which goes by pyverbs."""
    command = [sys.executable, "-m", "tf_byteps.rdma"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "rxe0 port 1: ACTIVE" in found.stdout and "RoCE v2" in found.stdout
    assert sorted(tf_byteps.rdma.get_device_list()) == _DEVICES
    server = subprocess.Popen([*command, "--serve", "--device", _SERVERS_DEVICE])
    try:
        # Looked up, not connected to: the check is served once.
        process = psutil.Process(server.pid)
        wait_until(lambda: any(c.status == "LISTEN" for c in process.net_connections()), 60)
        client = [*command, "--connect", "127.0.0.1", "--device", "rxe0", "--megabytes", "16"]
        result = subprocess.run(client, capture_output=True, text=True, timeout=100)
        assert result.returncode == 0, result.stderr
        assert server.wait(30) == 0
    finally:
        server.kill()
    print(found.stdout, result.stdout)
    assert re.search(r"[1-9][0-9.]* MB/s written, [0-9.]+ us one way", result.stdout)
