"""The examples run, and the demo's check notices a reduction that is wrong."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.time_limit(320)

_HERE = os.path.dirname(os.path.abspath(__file__))
_EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(_HERE)), "examples")


@pytest.fixture(scope="module")
def demo():
    spec = importlib.util.spec_from_file_location("demo", os.path.join(_EXAMPLES, "demo.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reference(demo, tmp_path_factory):
    return demo.train_alone(str(tmp_path_factory.mktemp("reference")))


def test_demo(demo, reference, tmp_path, capfd):
    demo.train_on_workers(demo.EXAMPLE, str(tmp_path))
    printed = "".join(capfd.readouterr())
    assert "accuracy" in printed and "oneDNN" not in printed and "absl" not in printed
    results = demo.check(demo.read(str(tmp_path)), reference)
    assert len(results) == 6
    assert all(ok for ok, _ in results), results


@pytest.mark.long
@pytest.mark.parametrize(
    "fault, noticed",
    [
        ("identity", "bit-identical"),
        ("one worker twice", "one process gets the same weights"),
        ("two replies swapped", "one process gets the same weights"),
    ],
)
def test_demo_notices(fault, noticed, demo, reference, tmp_path, monkeypatch):
    monkeypatch.setenv("DEMO_FAULT", fault)
    demo.train_on_workers(os.path.join(_HERE, "faulty_digits.py"), str(tmp_path))
    results = demo.check(demo.read(str(tmp_path)), reference)
    assert any(noticed in text for ok, text in results if not ok), results


@pytest.mark.extended
def test_keras_digits():
    """The lesson fits on a screen, and two workers end with one accuracy, as one alone does."""
    path = os.path.join(_EXAMPLES, "keras_digits.py")
    with open(path) as file:
        assert len(file.readlines()) <= 40
    launch = [sys.executable, "-m", "tf_byteps.launch", "-np", "2", "--servers", "1"]
    printed = []
    for command in ([sys.executable, path], [*launch, sys.executable, path]):
        process = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert process.returncode == 0, process.stdout + process.stderr
        printed += re.findall(r"test accuracy ([0-9.]+)", process.stdout)
    alone, together = map(float, printed)
    assert alone > 0.93 and abs(alone - together) < 0.01, printed


def _run_on_two_workers(name, *options):
    launch = [sys.executable, "-m", "tf_byteps.launch", "-np", "2", "--servers", "1"]
    command = [*launch, sys.executable, os.path.join(_EXAMPLES, name), *options]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    printed = process.stdout + process.stderr
    assert process.returncode == 0, printed
    return printed


@pytest.mark.long
def test_custom_loop():
    printed = _run_on_two_workers("custom_loop.py")
    assert "step 300  loss 0.0" in printed or "step 300  loss 0.1" in printed


def _megabytes_sent(printed):
    """What the last line of bpslaunch says of it."""
    number, unit = re.findall(r"([0-9.]+) ([kKMG]?B) sent", printed)[-1]
    return float(number) * {"B": 1e-6, "KB": 1e-3, "kB": 1e-3, "MB": 1, "GB": 1e3}[unit]


@pytest.mark.long
def test_keras_embeddings():
    """Rows are a small part of the tables."""
    rows = _megabytes_sent(_run_on_two_workers("keras_embeddings.py"))
    tables = _megabytes_sent(_run_on_two_workers("keras_embeddings.py", "--dense"))
    assert 0 < rows < tables / 10


@pytest.mark.extended
def test_keras_two_towers():
    """It finds films far better than by chance, which is 0.5 %."""
    printed = _run_on_two_workers("keras_two_towers.py")
    assert printed.count("Epoch 2/2") == 1, printed
    (found,) = re.findall(r"is the next one of ([0-9]+)% of the users", printed)
    assert int(found) >= 10, printed


@pytest.mark.long
def test_keras_server_table():
    """A table of 2.6 GB, of which 50 MB are trained: workers have none of it."""
    printed = _run_on_two_workers("keras_server_table.py", "--rows", "10000000")
    found = re.findall(r"table of 2\.600 GB; .* had ([0-9]+) MB before, and ([0-9]+) MB", printed)
    assert len(found) == 2, printed
    for before, after in found:
        assert int(after) < int(before) + 100, printed


@pytest.mark.long
def test_keras_dlrm():
    """With the shapes of DLRM-small a worker sends rows, a small part of 166 MB of tables."""
    printed = _run_on_two_workers("keras_dlrm.py")
    sent, losses = _megabytes_sent(printed), re.findall(r"loss: ([0-9.]+)", printed)
    assert " ms a step" in printed and 0 < sent / 32 < 166 / 20, printed
    assert len(losses) == 2 and float(losses[1]) < 0.8 * float(losses[0]), printed


@pytest.mark.long
def test_keras_local_steps():
    """Rounds are a small part of the gradients, and the model learns as well."""
    sent, losses = [], []
    for local_steps in ("16", "0"):
        printed = _run_on_two_workers(
            "keras_local_steps.py", "--local_steps", local_steps, "--steps", "64", "--epochs", "1"
        )
        sent.append(_megabytes_sent(printed))
        losses += map(float, re.findall(r"validation loss ([0-9.]+)", printed))
    assert 0 < sent[0] < sent[1] / 8, sent
    assert losses[1] < 3 and losses[0] < 1.1 * losses[1], losses


@pytest.mark.long
def test_keras_gpus():
    printed = _run_on_two_workers("keras_gpus.py")
    assert "2 workers, each on " in printed and printed.count("Epoch 2/2") == 1, printed


def test_every_example_says_what_it_teaches():
    """In three lines or more; the demo and the benchmark are tools."""
    tools = {"demo.py", "demo_training.py", "keras_synthetic_benchmark.py"}
    names = {name for name in os.listdir(_EXAMPLES) if name.endswith((".py", ".sh"))} - tools
    assert len(names) >= 6
    for name in names:
        with open(os.path.join(_EXAMPLES, name)) as file:
            lesson = file.read().partition("What it teaches:")[2].partition("\n\n")[0]
        assert len(re.findall(r"^(?:# )?\* ", lesson, re.MULTILINE)) == 3, name


_BENCHMARK = [os.path.join(_EXAMPLES, "keras_synthetic_benchmark.py"), "--model", "mlp"]


@pytest.mark.parametrize(
    "options",
    [
        [],
        pytest.param(["--fit", "--dense"], marks=pytest.mark.long),
        pytest.param(["--cross-step", "--steps-per-execution", "2"], marks=pytest.mark.long),
    ],
    ids=str,
)
def test_synthetic_benchmark(options):
    launch = [sys.executable, "-m", "tf_byteps.launch", "-np", "2", "--servers", "1"]
    few = ["--warmup", "1", "--steps", "2", "--rounds", "2"]
    command = [*launch, sys.executable, *_BENCHMARK, *few, *options, "--baseline", "10"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stdout + process.stderr
    line = (
        r"byteps, 2 replica\(s\) with batch 32, float32: [0-9.]+ ms a step .*, efficiency [0-9.]+%"
    )
    assert len(re.findall(line, process.stdout)) == 1, process.stdout


@pytest.mark.parametrize(
    "options, problem",
    [
        (["--cross-step", "--strategy", "none"], "--cross-step is a mode of --strategy byteps"),
        pytest.param(
            ["--fit", "--profile", "folder"],
            "--profile does not work with --fit",
            marks=pytest.mark.extended,
        ),
    ],
    ids=["cross-step", "profile"],
)
def test_synthetic_benchmark_refuses_what_it_would_ignore(options, problem):
    command = [sys.executable, *_BENCHMARK, *options]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert process.returncode == 2 and problem in process.stderr, process.stderr
