"""`--explain` on real jobs, each with one planted cause: it names the process and what it is."""

import contextlib
import os
import subprocess
import sys
import time

import numpy as np
import pytest

import tf_byteps
from benchmarks.cluster import EmulatedCluster, why_unavailable
from tests.cluster import Cluster, describe, run_workers
from tf_byteps import _engine, timeline
from tf_byteps.timeline.explain import explain
from tf_byteps.timeline.parts import read_credits, read_inputs, read_threads

SECONDS = 40
STEPS = 8
LONG = 0.1  # seconds: far more than anything else in a step takes
needs_hosts = pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())


def step(tensors, elements):
    gradient = np.ones(elements, np.float32)
    handles = [_engine.exchange(gradient, name=f"gradient/layer{n}") for n in range(tensors)]
    for handle in handles:
        handle.wait(SECONDS)


def exchanges(tensors, elements, seconds=(0, 0)):
    """Steps in which each worker computes for its seconds, and then exchanges its gradients."""
    tf_byteps.init()
    for _ in range(STEPS):
        time.sleep(seconds[tf_byteps.rank()])
        step(tensors, elements)
    tf_byteps.shutdown()


def causes(folder):
    """The sentence of a job, and the lines of its causes without their numbers of ms."""
    read = timeline.read(folder), read_inputs(folder), read_credits(folder), read_threads(folder)
    sentence, *lines = explain(*read)
    print(sentence, *lines, sep="\n")
    assert lines, sentence
    return sentence, [line.partition("a step: ")[2] for line in lines]


def recorded(tmp_path, function, *args, **variables):
    run_workers(function, args=args, env={"BYTEPS_TIMELINE": f"{tmp_path}/", **variables})
    return causes(tmp_path)


def test_a_worker_that_computes_longer(tmp_path):
    sentence, found = recorded(tmp_path, exchanges, 3, 500, [0, LONG])
    assert sentence.startswith("worker 0: step ") and "waits for worker 1)" in sentence
    assert found[0].startswith("worker 1: its compute takes ")
    assert "its threads" in found[0] and "others up to" not in found[0]


@needs_hosts
def test_a_slow_link_of_one_server(tmp_path):
    """Two workers, two servers and the scheduler, each on a host of its own."""
    labels = ["scheduler", "server 0", "server 1", "worker 0", "worker 1"]
    rates = [(0.02, 0.02) if label == "server 1" else (1.0, 1.0) for label in labels]
    with EmulatedCluster(len(labels), rates) as hosts:
        places = dict(zip(labels, zip(hosts.namespaces, hosts.addresses, strict=True), strict=True))
        how = {"servers": 2, "args": [8, 30_000], "place": places.get}
        with Cluster(exchanges, env={"BYTEPS_TIMELINE": f"{tmp_path}/"}, **how) as cluster:
            outcomes = cluster.wait(60)
    assert all(outcome.code == 0 for outcome in outcomes), describe(outcomes)
    sentence, found = causes(tmp_path)
    assert "waits for server 1)" in sentence
    assert found[0].startswith("server 1: ") and "other servers'" in found[0]


def test_a_small_credit(tmp_path):
    credit = {"BYTEPS_CREDIT_BYTES": "4096", "BYTEPS_PARTITION_BYTES": "4096"}
    sentence, found = recorded(tmp_path, exchanges, 1, 200_000, **credit)
    assert "waits for the credit)" in sentence
    assert found[0].startswith("the credit of 4.1 KB: it is used up")
    assert "BYTEPS_CREDIT_BYTES" in found[0]


def fit(seconds, as_one):
    """Trains on batches that come after each worker's seconds."""
    import keras
    import tensorflow as tf

    from tf_byteps.keras import DistributedOptimizer

    tf_byteps.init()

    def batches():
        for _ in range(STEPS):
            time.sleep(seconds[tf_byteps.rank()])
            yield np.ones((4, 4), np.float32), np.ones((4, 2), np.float32)

    spec = tf.TensorSpec([4, 4]), tf.TensorSpec([4, 2])
    data = tf.data.Dataset.from_generator(batches, output_signature=spec)
    scope = tf_byteps.BytePSStrategy().scope() if as_one else contextlib.nullcontext()
    with scope:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        optimizer = keras.optimizers.SGD(0.01)
        model.compile(optimizer if as_one else DistributedOptimizer(optimizer), "mse")
    model.fit(data, epochs=2, verbose=0)
    tf_byteps.shutdown()


def test_a_starved_input_of_all(tmp_path):
    sentence, found = recorded(tmp_path, fit, [LONG, LONG], True)
    assert found[0].split(": ")[1].startswith("its wait for input takes "), found
    assert "prefetch" in found[0]
    assert float(sentence.rpartition("input ")[2]) > LONG * 1000 / 2


def test_a_starved_input_of_one_worker(tmp_path):
    sentence, found = recorded(tmp_path, fit, [0, LONG], False)
    assert sentence.startswith("worker 0: ") and "waits for worker 1)" in sentence
    assert found[0].startswith("worker 1: its wait for input takes ")


def has_threads(threads):
    """Each worker computes as long as the same work takes with its number of threads."""
    import tensorflow as tf

    own = threads[int(os.environ["BYTEPS_GLOBAL_RANK"])]
    tf.config.threading.set_intra_op_parallelism_threads(own)
    exchanges(3, 500, [LONG * max(threads) / number for number in threads])


def test_a_worker_with_half_the_threads(tmp_path):
    sentence, found = recorded(tmp_path, has_threads, [4, 2])
    assert sentence.startswith("worker 0: step ")
    assert "(tensor gradient/layer" in sentence and "waits for worker 1)" in sentence
    assert found[0].startswith("worker 1: its compute takes ")
    assert "; it has 2 threads, others up to 4: check its CPUs, its threads" in found[0]


def computes(processors):
    """The same work on each worker. Worker 1 has a tenth of its processor: others run there."""
    rank = int(os.environ["BYTEPS_GLOBAL_RANK"])
    os.sched_setaffinity(0, {processors[rank]})
    command = [sys.executable, "-c", "while True: pass"]
    # Its own children: the scheduler of Linux may divide processors by sessions first.
    others = [subprocess.Popen(command) for _ in range(9 * rank)]
    try:
        tf_byteps.init()
        for _ in range(STEPS):
            begin = time.thread_time()
            while time.thread_time() - begin < 0.01:
                pass
            step(3, 500)
        tf_byteps.shutdown()
    finally:
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.slow
def test_a_worker_with_a_tenth_of_a_processor(tmp_path):
    processors = sorted(os.sched_getaffinity(0))[:2]
    if len(processors) < 2:
        pytest.skip("needs two processors")
    sentence, found = recorded(tmp_path, computes, processors)
    assert "waits for worker 1)" in sentence
    assert found[0].startswith("worker 1: its compute takes ")
