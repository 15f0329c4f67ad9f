"""An alltoall whose rows are lost with a server: see test_lost_rows.py.

`python -m tests.elastic.lost_rows_programs HOW FOLDER` is a worker. In one step worker 0 stops
worker 1 when a server has its rows, gets its own rows, kills that server, and has worker 1 go on.
The rows for worker 1 are too many for what a socket holds, so that most are lost.
"""

import os
import pathlib
import sys

import numpy as np
import psutil

import tf_byteps
from tests.cluster import wait_until
from tf_byteps import _engine
from tf_byteps.exchange import host
from tf_byteps.runtime import facts

STEPS, COMMIT, LOST = 4, 2, 2
_MANY, _FEW = 1 << 20, 3  # rows
_WIDTH = 16  # float32


def of_numpy(rows, splits):
    return host.alltoall(rows, splits, "rows")


def of_tensorflow(rows, splits):
    received, counts = tf_byteps.alltoall(rows, splits, name="rows")
    return received.numpy(), counts.numpy().tolist()


def main(how, folder):
    """Trains, and says which steps it has made."""
    # On hosts of their own: then a server asks a worker for what others have pushed.
    os.environ["BYTEPS_HOST_ID"] = f"host of worker {os.environ['BYTEPS_MEMBER']}"
    exchange = {"numpy": of_numpy, "tensorflow": of_tensorflow}[how]
    state, said = tf_byteps.elastic.ObjectState(step=0), []

    @tf_byteps.elastic.run
    def train(state):
        pathlib.Path(folder, f"worker_{tf_byteps.rank()}").write_text(str(os.getpid()))
        while state.step < STEPS:
            said.append(state.step)
            loses = state.step == LOST and said.count(LOST) == 1 and tf_byteps.rank() == 0
            other = _stop_other(folder) if loses else None
            splits = [_FEW, _MANY if loses else _FEW]
            before = _pushed()
            received, counts = exchange(_rows(splits, state.step), splits)
            if other is not None:
                _kill_server(before)
                other.resume()
            assert counts == [_FEW, _FEW], counts
            np.testing.assert_array_equal(received[:_FEW], state.step)
            np.testing.assert_array_equal(received[_FEW:], 100 + state.step)
            state.step += 1
            if state.step % COMMIT == 0:
                state.commit()

    train(state)
    print(f"rank {tf_byteps.rank()} made {said}", flush=True)
    tf_byteps.shutdown()


def _stop_other(folder):
    """Stops worker 1 when a server has its rows."""
    wait_until(lambda: _engine.is_requested("rows"))
    other = psutil.Process(int(pathlib.Path(folder, "worker_1").read_text()))
    other.suspend()
    wait_until(lambda: other.status() == psutil.STATUS_STOPPED)
    return other


def _rows(splits, step):
    return np.full([sum(splits), _WIDTH], 100 * tf_byteps.rank() + step, np.float32)


def _pushed():
    """How many bytes this worker has pushed to each server."""
    pushed = {}
    for path in _engine.worker_counters()["paths"]:
        pushed[path["server"]] = pushed.get(path["server"], 0) + path["pushed_bytes"]
    return pushed


def _kill_server(before):
    """Kills the server to which this worker has pushed since, and waits until it has ended."""
    after = _pushed()
    (server,) = [number for number in after if after[number] > before.get(number, 0)]
    port = facts.session("the test")._book.server_endpoints[server].port
    (pid,) = {
        each.pid
        for each in psutil.net_connections("tcp")
        if each.status == psutil.CONN_LISTEN and each.laddr.port == port
    }
    process = psutil.Process(pid)
    process.kill()
    wait_until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)


if __name__ == "__main__":
    main(*sys.argv[1:])
