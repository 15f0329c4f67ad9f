"""Functions and trainings that XLA compiles for GPUs; skipped where there is none."""

import functools

import pytest

from tests.cluster import describe, outcome_of, run_processes
from tests.gpu import compiled_programs, programs
from tests.gpu.test_gpu import GPUS, on_gpus, run

pytestmark = pytest.mark.skipif(not GPUS, reason="this machine has no NVIDIA GPU")

# XLA looks for ptxas and libdevice there; the wheels have them elsewhere.
TOOLKIT = {"XLA_FLAGS": "--xla_gpu_cuda_data_dir=/usr/local/cuda"}
run = functools.partial(run, **TOOLKIT)


@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_all_types_and_operations(hosts):
    results = run(compiled_programs.exchanges, hosts=hosts, BYTEPS_PARTITION_BYTES="1024")
    assert results == [8 * 5 + 4] * 2


@pytest.mark.parametrize("hosts", ["aa", "ab", "aabb"])
def test_loops_and_what_is_around_them(hosts):
    assert run(compiled_programs.beside_loops, hosts=hosts) == [16] * len(hosts)


@pytest.mark.parametrize("hosts", ["aa", "ab", "aabb"])
def test_tensors_that_are_still_being_computed(hosts):
    results = run(compiled_programs.many_tensors, hosts=hosts, BYTEPS_PARTITION_BYTES="65536")
    assert results == [1200] * len(hosts)


@pytest.mark.parametrize("hosts", ["aa", "ab", "aabb"])
def test_sums_that_are_left_to_the_next_program(hosts):
    results = run(compiled_programs.across_programs, hosts=hosts, BYTEPS_PARTITION_BYTES="65536")
    assert results == [800] * len(hosts)


@pytest.mark.parametrize("queues", ["8", "1"])
@pytest.mark.parametrize("hosts", ["aa", "ab", "aabb"])
def test_norms_that_travel_during_backpropagation(hosts, queues):
    program = compiled_programs.gradients_with_norms
    results = run(program, hosts=hosts, CUDA_DEVICE_MAX_CONNECTIONS=queues)
    assert len({digest for _, digest in results}) == 1
    assert max(error for error, _ in results) <= 0.3


@pytest.mark.parametrize("program, results", [("many_tensors", 1200), ("across_programs", 800)])
@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_few_hardware_queues(hosts, program, results):
    """Streams that share one must not wait for each other in a circle."""
    program = getattr(compiled_programs, program)
    assert run(program, hosts=hosts, CUDA_DEVICE_MAX_CONNECTIONS="1") == [results] * 2


def test_cuda_keeps_others_out_while_streams_wait():
    for result, steps in run(compiled_programs.memory_is_freed_meanwhile, hosts="ab"):
        assert result == steps + 0.5  # the average of ranks 0 and 1, and 1 for each step


@pytest.mark.parametrize("program", ["host_is_free", "host_is_free_across_programs"])
@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_the_host_does_not_wait_for_the_gpu(hosts, program):
    for called, whole in run(getattr(compiled_programs, program), hosts=hosts):
        assert called < whole / 2


@pytest.mark.parametrize("program", ["is_left_alone", "is_left_alone_across_programs"])
@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_a_lost_worker_is_an_error(hosts, program):
    env = on_gpus(hosts, **TOOLKIT)
    outcomes = run_processes(getattr(compiled_programs, program), 2, 1, env, timeout=120)
    left = outcome_of(outcomes, "worker 0")
    assert left.result is not None and "worker 1" in left.result[1], describe(outcomes)
    assert left.result[0] == "UnavailableError"


@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_training_across_steps_equals_plain_steps(hosts):
    plain = run(programs.trains, args=[False], hosts=hosts)
    across = run(programs.trains, args=[False, True, 0, True], hosts=hosts)
    assert len({result["digest"] for result in across}) == 1
    assert not [text for text in across[0]["warnings"] if "cross_step" in text]
    assert across[0]["norm"] == pytest.approx(plain[0]["norm"], rel=1e-3)
    assert across[0]["losses"] == pytest.approx(plain[0]["losses"], rel=5e-2)


@pytest.mark.parametrize("hosts", ["aa", "ab"])
def test_training_keeps_the_workers_equal_and_equals_uncompiled(hosts):
    plain = run(programs.trains, args=[False], hosts=hosts)
    compiled = run(programs.trains, args=[False, False, 0, True], hosts=hosts)
    assert len({result["digest"] for result in compiled}) == 1
    assert compiled[0]["norm"] == pytest.approx(plain[0]["norm"], rel=1e-3)
    assert compiled[0]["losses"] == pytest.approx(plain[0]["losses"], rel=5e-2)
