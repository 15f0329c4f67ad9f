"""`bpslaunch plan`: an estimate of memory and bytes, compared with what a job has sent."""

import re
import subprocess
import sys

import pytest

from tf_byteps.launch import estimate

_EXCHANGES = """
import numpy as np, tf_byteps
from tf_byteps import _engine
tf_byteps.init()
for _ in range(4):
    _engine.exchange(np.ones(250_000, np.float32), name="t").wait()
"""


def _plan(*words):
    command = [sys.executable, "-m", "tf_byteps.launch", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_a_job_sends_what_was_estimated(launch):
    planned = _plan("plan", "--parameters", "250K", "-np", "2", "--servers", "1")
    assert planned.returncode == 0, planned.stderr
    sent = re.search(r"sent by a worker +(\S+) MB in a step", planned.stdout)[1]
    running = launch("-np", "2", "--servers", "1", sys.executable, "-c", _EXCHANGES)
    assert running.wait(60) == 0, running.err
    assert float(re.search(r"(\S+) MB sent per worker", running.err)[1]) == 4 * float(sent)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (
            (110_000_000, "adam", "float32", 4, 2, 10.0),
            ["2.2 GB (440 MB weights, 440 MB gradients, 880 MB optimizer, 440 MB sums)"]
            + ["server       up to 440 MB", "server         880 MB in a step", "704 ms in a step"],
        ),
        (
            (25_600_000, "sgd", "float32", 4, 0),
            ["(102 MB weights, 102 MB gradients, 102 MB sums, 51.2 MB its server)"]
            + ["sent by a worker         154 MB in a step"],
        ),
        ((1000, "adam", "bfloat16", 1, 0), ["1 worker: nothing is sent", "8 KB (2 KB weights, "]),
    ],
)
def test_what_is_estimated(arguments, said):
    text = "\n".join(estimate.described(*arguments))
    assert all(piece in text for piece in said), text


@pytest.mark.parametrize(
    "words, said",
    [
        (["--parameters", "25x"], "'25x' is not a number such as 25600000, 110M or 1.5B"),
        (["--parameters", "1M", "-np", "0"], "'0' is not a positive whole number"),
        (["--parameters", "1M", "--gigabits", "0"], "--gigabits must be more than 0"),
        (["--parameters", "1M", "--optimizer", "sdg"], "invalid choice: 'sdg'"),
        ([], "the following arguments are required: --parameters"),
    ],
)
def test_what_is_no_number(capsys, words, said):
    with pytest.raises(SystemExit) as ended:
        estimate.main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_hosts_say_how_many_workers(capsys):
    assert estimate.main(["--parameters", "1.5B", "-H", "a:4,b:4", "--dtype", "float16"]) == 0
    assert "1.5B parameters (float16), adam, 8 workers, " in capsys.readouterr().out
