"""What the jobs over RDMA of inside.py and broken.py share: their environment, what their workers
run, and what their counters must say."""

import json
import pathlib

import numpy as np

import tf_byteps
from tests.engine import programs
from tf_byteps import _engine

DEVICES = sorted(path.name for path in pathlib.Path("/sys/class/infiniband").glob("*"))
SERVERS_DEVICE = DEVICES[-1]
# The machine has two slow processors, and everything happens on them.
_PATIENCE = {
    "BYTEPS_CONNECT_TIMEOUT": "60",
    "BYTEPS_RENDEZVOUS_TIMEOUT": "900",
    "BYTEPS_OPERATION_TIMEOUT": "120",
    "BYTEPS_HEARTBEAT_TIMEOUT": "60",
}
_MOST_CONTROL_BYTES = 20_000
ELEMENTS = 500_000
ROUNDS = 3


def environment(folder=None):
    def of(label):
        role = label.split()[0]
        device = SERVERS_DEVICE if role == "server" else "rxe0"
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


def check_worker(counters):
    """All that was pushed and received went by RDMA."""
    assert counters["rdma_bytes_sent"] == counters["pushed_bytes"] > 0
    _check_almost_equal(counters["rdma_bytes_received"], counters["received_bytes"])
    check_little_over_tcp(counters)


def check_server(path):
    counters = json.loads(path.read_text())
    van = counters["van"]
    assert van["rdma_bytes_received"] == counters["pushed_bytes"] > 0
    _check_almost_equal(van["rdma_bytes_sent"], counters["replied_bytes"])
    check_little_over_tcp(van)


def _check_almost_equal(by_rdma, results):
    """A server also reports to its workers, once in a while, and that is not a result."""
    assert 0 < results <= by_rdma < results + _MOST_CONTROL_BYTES, (by_rdma, results)


def check_little_over_tcp(van):
    """Messages to and from the coordinator."""
    for way in ("sent", "received"):
        over_tcp = van[f"payload_bytes_{way}"] - van[f"rdma_bytes_{way}"]
        assert 0 <= over_tcp < _MOST_CONTROL_BYTES, (way, van)
