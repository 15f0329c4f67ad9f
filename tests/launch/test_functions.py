"""tf_byteps.launch.run: functions as workers, from a module, a program and an interrupted one."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

import tf_byteps
from tests.cluster import ROOT, clean_environment, wait_until
from tf_byteps.errors import BytePSError

_PROGRAM = """
import os, tf_byteps

base = 10
def train(epochs, scale=1):
    import numpy, tf_byteps
    from tf_byteps import _engine
    tf_byteps.init()
    given = numpy.full(3, base + tf_byteps.rank(), numpy.float32)
    total = _engine.exchange(given, name="x").wait(30)[0]
    print("worker of", tf_byteps.size())
    return epochs, scale, float(total), os.getpid() != parent

parent = os.getpid()
print(tf_byteps.launch.run(train, [3], {"scale": 2}, np=2, servers=1))
"""


def place(*given):
    tf_byteps.init()
    return [tf_byteps.rank(), tf_byteps.size(), os.environ.get("GIVEN"), *given]


def fail_on_rank_1():
    tf_byteps.init()
    if tf_byteps.rank() == 1:
        raise ValueError("no such data")


def test_a_function_of_a_module(capfd):
    results = tf_byteps.launch.run(place, ["a"], np=2, env=clean_environment(GIVEN="yes"))
    assert results == [[0, 2, "yes", "a"], [1, 2, "yes", "a"]]
    assert (
        "2 workers on 1 host (CPU), servers inside the workers, TLS off" in capfd.readouterr().out
    )


def test_one_worker():
    assert tf_byteps.launch.run(place, env=clean_environment()) == [[0, 1, None]]


def test_a_function_of_the_program_itself():
    done = subprocess.run(
        [sys.executable, "-"],
        input=_PROGRAM,
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.endswith("[(3, 2, 21.0, True), (3, 2, 21.0, True)]\n"), done.stderr
    assert done.stdout.count("worker of 2") == 2


def test_a_worker_that_fails_is_an_error_with_its_exception():
    with pytest.raises(BytePSError) as caught:
        tf_byteps.launch.run(fail_on_rank_1, np=2, env=clean_environment())
    assert "the job has failed with exit code 1" in str(caught.value)
    assert str(caught.value).endswith("ValueError: no such data\n")
    assert "worker 1: Traceback" in str(caught.value)


def test_wrong_options_are_an_error():
    with pytest.raises(BytePSError, match="exit code 2:\n(.|\n)*unrecognized arguments: --nope"):
        tf_byteps.launch.run(place, options=["--nope"], env=clean_environment())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_end_of_the_program_ends_the_workers(number):
    program = "import time, tf_byteps; tf_byteps.launch.run(time.sleep, [600], np=2)"
    running = subprocess.Popen(
        [sys.executable, "-c", program], env=clean_environment(), stderr=subprocess.DEVNULL
    )

    def workers():
        children = psutil.Process(running.pid).children(recursive=True)
        return [p for p in children if p.cmdline()[1:3] == ["-m", "tf_byteps.launch.functions"]]

    wait_until(lambda: len(workers()) == 2)
    running.send_signal(number)
    running.wait(60)  # no_process_left looks for the rest
