"""The operations on tensors in a GPU's memory; skipped where there is no GPU.

Every worker has a GPU of its own, or shares the only one.
"""

import os

import pytest

from tests.cluster import describe, run_processes, run_workers
from tests.gpu import programs
from tf_byteps.launch.gpus import visible_gpus

GPUS = visible_gpus(os.environ)

pytestmark = pytest.mark.skipif(not GPUS, reason="this machine has no NVIDIA GPU")


def environment(label):
    role, _, number = label.partition(" ")
    if role != "worker":
        return {}
    return {
        "CUDA_VISIBLE_DEVICES": GPUS[int(number) % len(GPUS)],
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }


def run(function, servers=1, args=()):
    return run_workers(function, 2, servers, environment, timeout=200, args=args)


def test_all_types_and_operations():
    # 8 types with 5 operations, 4 of them with an average, too; each eager and in a function.
    assert run(programs.exchanges) == [2 * (8 * 5 + 4)] * 2


def test_tensors_that_are_still_being_computed():
    assert run(programs.many_tensors, servers=0) == [1200] * 2


def test_the_gpu_computes_while_an_exchange_waits():
    (computed, exchanged), _ = run(programs.computes_while_waiting, args=[4.0])
    assert exchanged > 3
    assert computed < 2


def test_a_lost_worker_is_an_error():
    outcomes = run_processes(programs.is_left_alone, 2, 1, environment, timeout=120)
    left = next(outcome for outcome in outcomes if outcome.label == "worker 0")
    assert left.result is not None and "worker 1" in left.result, describe(outcomes)


@pytest.mark.parametrize("mixed", [False, True])
def test_training_keeps_the_workers_equal(mixed):
    first, second = run(programs.trains, args=[mixed])
    assert first["digest"] == second["digest"]
    assert first["losses"][-1] < first["losses"][0]
    assert all("GPU" in device for device in first["devices"]), first["devices"]


def test_training_equals_the_cpus_within_rounding():
    on_gpu, _ = run(programs.trains, args=[False])
    on_cpu, _ = run_workers(programs.trains, 2, 1, timeout=200, args=[False])
    assert on_gpu["norm"] == pytest.approx(on_cpu["norm"], rel=1e-3)
    assert on_gpu["losses"] == pytest.approx(on_cpu["losses"], rel=1e-2)
