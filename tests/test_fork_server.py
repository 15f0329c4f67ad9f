"""Workers that are forked are like those that are started."""

import atexit
import os
import pathlib
import random
import signal
import sys

import numpy as np
import pytest

import tf_byteps
from tests import fork_server, process_kinds
from tests.cluster import Cluster, clean_environment, outcome_of, run_workers, worker_command
from tf_byteps.rendezvous.roster import run_id


def shown(given):
    """What a worker shows of itself."""
    found = [name in sys.modules for name in ("tensorflow", "tf_byteps.ops", "tf_byteps.jax")]
    import tensorflow as tf

    tf_byteps.init()
    return {
        "found": found,
        "given": [given, os.environ["TESTS_GIVEN"], sys.argv[1:3], os.getcwd()],
        "place": [os.getppid(), os.getsid(0) == os.getpid()],
        "drawn": [random.random(), np.random.random(), float(tf.random.uniform([])), run_id()],
    }


def ends(how):
    import tensorflow  # noqa: F401

    atexit.register(print, "at exit", flush=True)
    if how == "error":
        raise ValueError("of a test")
    if how == "code":
        sys.exit(3)
    if how == "signal":
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_worker_has_what_it_was_given_and_nothing_of_others():
    workers = run_workers(shown, args=["an argument"], env={"TESTS_GIVEN": "a variable"})
    for worker in workers:
        assert worker["found"] == [True, True, False]
        names = [__name__, "shown"]
        assert worker["given"] == ["an argument", "a variable", names, os.getcwd()]
        assert worker["place"] == [os.getpid(), True]
    for first, second in zip(*(worker["drawn"] for worker in workers), strict=True):
        assert first != second


def shown_on_jax():
    """What a worker with Keras on JAX shows of itself."""
    found = [name in sys.modules for name in ("keras", "jax", "tensorflow", "tf_byteps.ops")]
    import jax
    import keras

    return found, keras.config.backend(), bool(jax.config.jax_enable_x64)


def test_a_worker_on_jax_has_keras_on_jax_and_no_tensorflow():
    pytest.importorskip("jax", reason="Keras on JAX needs jax")
    on_jax = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    for wide in ("0", "1"):
        environment = {**on_jax, "JAX_ENABLE_X64": wide}
        (shown,) = run_workers(shown_on_jax, workers=1, servers=0, env=environment)
        assert shown == [[True, True, False, False], "jax", wide == "1"]


def test_schedulers_and_servers_have_no_framework_and_what_they_are_given():
    with Cluster(ends, workers=1, servers=1, args=["return"]) as cluster:
        for process in (cluster.scheduler, *cluster.servers):
            assert isinstance(process.popen, fork_server._Forked)
        maps = pathlib.Path(f"/proc/{cluster.servers[0].popen.pid}/maps").read_text()
        assert "/tf_byteps/" in maps and "tensorflow" not in maps and "numpy" not in maps


@pytest.mark.parametrize(
    "how, code, printed",
    [
        ("return", 0, "at exit"),
        ("code", 3, "at exit"),
        ("error", 1, "ValueError: of a test"),
        ("signal", -signal.SIGTERM, ""),
    ],
)
def test_it_ends_like_any_process(how, code, printed):
    with Cluster(ends, workers=1, servers=0, args=[how]) as cluster:
        ended = outcome_of(cluster.wait(60), "worker 0")
    assert ended.code == code, ended.output
    assert printed in ended.output
    assert ("at exit" in ended.output) == (how != "signal")


def test_what_reads_variables_when_it_starts_is_not_forked():
    command = worker_command(shown)
    server = (sys.executable, "-m", "tf_byteps.server")
    for each in (command, server):
        assert process_kinds.kind_of(each, clean_environment(BYTEPS_X="1"))
        assert not process_kinds.kind_of(each, clean_environment(XLA_FLAGS="--xla_dump_to=x"))
        assert not process_kinds.kind_of(each, clean_environment(PYTHONPATH="elsewhere"))
        assert not process_kinds.kind_of(each, clean_environment(JAX_PLATFORMS="cpu"))
    other = (sys.executable, "-m", "tf_byteps.launch")
    assert not process_kinds.kind_of(other, clean_environment())
