"""TLS on the data plane, in whole jobs; cc/van/tls/tls_test.cc has the rest."""

import contextlib
import os
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest

import tf_byteps
from tests.access import programs
from tests.cluster import ROOT, clean_environment, describe, outcome_of, run_processes, run_workers
from tf_byteps import _engine
from tf_byteps.config import Config
from tf_byteps.errors import ConfigError

SECRET = "0123456789abcdef0123456789abcdef"
NAME = "a/layer/that/nobody/is/to/know"
PATTERN = b"a gradient that nobody is to see"
_TLS = {"BYTEPS_TLS": "1", "BYTEPS_JOB_SECRET": SECRET}
_SOCKETS_ONLY = {"BYTEPS_ENABLE_IPC": "0"}
_ALL_PROTOCOLS = 3


class TestConfiguration:
    def test_it_needs_a_secret(self):
        job = {"DMLC_PS_ROOT_URI": "host", "DMLC_PS_ROOT_PORT": "1", "DMLC_NUM_WORKER": "2"}
        with pytest.raises(ConfigError, match="BYTEPS_TLS .*no secret.*BYTEPS_JOB_SECRET"):
            Config.from_environment({**job, "BYTEPS_TLS": "1"})
        assert Config.from_environment({**job, **_TLS}).tls
        assert Config.from_environment({"BYTEPS_TLS": "1"}).tls  # one worker opens no socket

    def test_rdma_does_not_encrypt(self):
        with pytest.raises(ConfigError, match="RDMA does not encrypt"):
            Config.from_environment({**_TLS, "BYTEPS_VAN": "rdma"})
        assert Config.from_environment({**_TLS, "BYTEPS_VAN": "auto"}).tls


class Ear:
    """Hears all that goes through the loopback interface of this machine, as root may."""

    def __init__(self):
        self.heard = bytearray()
        self._socket = socket.socket(
            socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS)
        )
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.2)
        self._is_over = False
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over = True
        self._thread.join()
        self._socket.close()

    def _listen(self):
        while not self._is_over:
            with contextlib.suppress(TimeoutError):
                self.heard += self._socket.recv(1 << 17)


def sends_a_pattern():
    tf_byteps.init()
    mine = np.frombuffer(PATTERN * 1000, np.uint8)
    total = _engine.exchange(mine, name=NAME).wait(30)
    tf_byteps.shutdown()
    return bool((total == 2 * mine).all())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hears what others send")
@pytest.mark.parametrize("tls", [True, False])
def test_nothing_of_a_job_is_heard(tls):
    env = {**(_TLS if tls else {"BYTEPS_JOB_SECRET": SECRET}), **_SOCKETS_ONLY}
    with Ear() as ear:
        assert run_workers(sends_a_pattern, 2, 1, env) == [True, True]
    # In clear both are there: the ear does hear.
    assert (PATTERN in ear.heard) != tls
    assert (NAME.encode() in ear.heard) != tls


@pytest.mark.parametrize("servers", [0, 1])
def test_jobs_with_tls(servers):
    assert run_workers(programs.joins, 2, servers, _TLS) == [3.0, 3.0]


_BESIDE_BORINGSSL = """
import ctypes, hashlib, importlib.util, os
folder = importlib.util.find_spec("tensorflow").submodule_search_locations[0]
library = os.path.join(folder, "libtensorflow_framework.so.2")
ctypes.CDLL(library, os.RTLD_NOW | os.RTLD_GLOBAL)
assert "libssl" not in open("/proc/self/maps").read()
from tf_byteps import _engine
options = _engine.EngineOptions()
options.security.tls, options.security.secret = True, "0123456789abcdef"
print("port", _engine.Server("127.0.0.1", 0, options).endpoint.port)
"""


def test_openssl_does_not_meet_boringssl():
    """TensorFlow makes it global, and may be there first; Python's own ssl is not loaded here."""
    result = subprocess.run(
        [sys.executable, "-c", _BESIDE_BORINGSSL],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0 and "port" in result.stdout, result.stderr


@pytest.mark.parametrize("tls", ["0", "1"])
def test_a_process_with_the_other_setting_is_refused(tls):
    def env(label):
        setting = str(1 - int(tls)) if label == "worker 1" else tls
        timeouts = {"BYTEPS_CONNECT_TIMEOUT": "3", "BYTEPS_RENDEZVOUS_TIMEOUT": "4"}
        return {**_TLS, "BYTEPS_TLS": setting, **timeouts}

    outcomes = run_processes(programs.joins, 2, 1, env)
    refused = outcome_of(outcomes, "worker 1").result
    assert f"its tls is {1 - int(tls)} but that of" in refused, describe(outcomes)
    assert "set BYTEPS_TLS to the same value everywhere" in refused


def trains():
    """Some steps of a model; returns losses and the final weights."""
    import keras

    keras.utils.set_random_seed(1)
    strategy = tf_byteps.BytePSStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input([8]), keras.layers.Dense(16), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.05), "mse")
    x = np.random.default_rng(1).normal(size=(64, 8)).astype("float32")
    history = model.fit(x, x.sum(axis=1, keepdims=True), batch_size=16, epochs=3, verbose=0)
    weights = [each.tolist() for each in model.get_weights()]
    tf_byteps.shutdown()
    return [history.history["loss"], weights]


def test_training_with_tls():
    """In processes in which TensorFlow's own TLS library is loaded, too."""
    results = run_workers(trains, 2, 1, {**_TLS, **_SOCKETS_ONLY}, timeout=120)
    assert results[0][1] == results[1][1]
    losses = results[0][0]
    assert losses[-1] < losses[0] / 2


def test_bpslaunch():
    program = (
        "import numpy, tf_byteps; from tf_byteps import _engine; tf_byteps.init(); "
        "total = _engine.exchange(numpy.ones(9, 'f'), name='t').wait(30); "
        "print(total.sum(), tf_byteps.runtime.config().tls)"
    )
    command = [sys.executable, "-m", "tf_byteps.launch", "-np", "2", "--tls", "--"]
    result = subprocess.run(
        [*command, sys.executable, "-c", program],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("18.0 True") == 2
