"""The benchmarks run, with sizes that say nothing about speed."""

import math
import pathlib
import re
import subprocess

import pytest

import benchmarks.__main__
from benchmarks import cluster, compression_training, goodput, loopback, peers, report
from benchmarks.cluster import EmulatedCluster
from benchmarks.jobs import Job
from benchmarks.measure import Runs, interleaved, ratios
from benchmarks.models import MODELS, bert_large, optimal_seconds, resnet50, uniform, vgg16
from benchmarks.report import Row
from benchmarks.wire import measure_wire

needs_hosts = pytest.mark.skipif(
    bool(cluster.why_unavailable()), reason=cluster.why_unavailable() or "-"
)


@pytest.mark.parametrize(
    ("model", "tensors", "parameters"),
    # The numbers that the frameworks' own model zoos report.
    [(resnet50, 161, 25_557_032), (vgg16, 32, 138_357_544), (bert_large, 391, 335_141_888)],
)
def test_model_totals(model, tensors, parameters):
    made = model()
    assert len(made.tensors) == tensors
    assert made.elements == parameters
    assert len({name for name, _ in made.tensors}) == tensors


def test_scaled_models_keep_their_tensors():
    for model in MODELS.values():
        made, scaled = model(), model().scaled(4)
        assert len(scaled.tensors) == len(made.tensors)
        assert 0.24 < scaled.bytes / made.bytes < 0.26


def test_optimum():
    # Without additional servers: a ring all-reduce. With as many as workers: push and pull at full
    # rate.
    for workers in (2, 4, 8):
        ring = 2 * (workers - 1) / workers
        assert math.isclose(optimal_seconds(workers, 0, 1e6, 1e6), ring)
        assert math.isclose(optimal_seconds(workers, workers, 1e6, 1e6), 1)
        assert optimal_seconds(workers, 3 * workers, 1e6, 1e6) == optimal_seconds(
            workers, workers, 1e6, 1e6
        )
    assert math.isclose(optimal_seconds(4, 2, 1e6, 1e6), 1.2)
    assert optimal_seconds(1, 0, 1e6, 1e6) == 0


def test_bytes_due_are_those_of_the_formula_where_the_load_is_balanced():
    workers, servers, model_bytes = 4, 2, 1000.0
    divisor = workers**2 + workers * servers - 2 * servers
    loads = [(workers - servers) / divisor] * workers + [2 * (workers - 1) / divisor] * servers
    due = goodput._bytes_due(workers, model_bytes, loads)
    for host in due:
        assert math.isclose(host, optimal_seconds(workers, servers, model_bytes, 1))


def test_statistics_and_verdicts():
    order = []
    runs = interleaved(
        3, "s", {"a": lambda: order.append("a") or 2.0, "b": lambda: order.append("b") or 4.0}
    )
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert ratios(runs["b"], runs["a"]).median == 2
    assert Row("x", "", Runs((1.0, 3.0, 2.0), "×"), (">=", 2.0)).verdict == "reached"
    assert Row("x", "", Runs((1.0,), "×"), (">=", 2.0)).verdict == "not reached"
    assert Row("x", "", Runs((3.0,), "×"), (">=", 2.0), broken="b").passed is False
    assert Row("x", "", None, (">=", 2.0)).passed is False
    row = Row("x", "c", Runs((3.0, 4.0), "×"), (">=", 2.0), goal="g")
    assert Row.from_json(row.as_json()) == row


def test_loopback():
    with Job("benchmarks.programs.engine", workers=2, servers=0) as job:
        job.workers.call("join")
        sessions = {"tf_byteps": job.workers}
        (row,) = loopback.all_reduce_rows(sessions, 0, [1], 2)
        assert len(row.runs.values) == 2 and row.runs.least > 0
        small = uniform(3, 1000)
        job.workers.call("prepare", group="small", tensors=small.tensors)
        job.workers.call("exchange", group="small")
        job.workers.call("check", group="small")
        loads = [counters["pushed_bytes"] for counters in job.finish()]
    assert len(loads) == 2 and sum(loads) >= 2 * small.bytes


@pytest.mark.slow
@pytest.mark.time_limit(600)
def test_onebit_and_topk_need_their_error_feedback():
    """The only figures of a benchmark that do not depend on the machine's speed."""
    rows, _ = compression_training.run(2, "sgd", seeds=1, steps=1500)
    verdicts = {row.case.rpartition(" ")[2]: row.passed for row in rows}
    for codec in ("onebit", "topk"):
        assert verdicts[codec] and verdicts[f"{codec}:feedback=0"], rows


@needs_hosts
def test_emulated_hosts_are_as_slow_as_they_should_be():
    with EmulatedCluster(2, 0.2) as hosts:
        wire = measure_wire(hosts, seconds=0.6)
        sent, received = hosts.counters()[0]
        name = hosts.namespaces[0]
    assert 0.7 < wire.bytes_per_second * 8e-9 / 0.2 < 1.05
    assert sent > 0.1 * wire.bytes_per_second and received > 0
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    assert name not in listed


@needs_hosts
def test_goodput():
    measured = goodput.measure(uniform(4, 50_000), 2, 1, gigabits=0.2, rounds=2)
    assert 0 < measured["t_opt"] / measured["seconds"].median < 1.1
    assert min(map(min, measured["nic_shares"])) >= 1
    assert measured["most_loaded"] >= 1


@pytest.mark.time_limit(620)
def test_peers_are_prepared_with_what_pip_says(tmp_path, monkeypatch):
    """Before anything is measured: what is missing is installed, or it is said why it is not."""
    monkeypatch.setattr(peers, "ROOT", tmp_path)
    broken = peers.Peer("broken", ("--no-index", "no-such-package"), "import nothing")
    with report.console.capture() as shown:
        peers.prepare([broken])
    said = shown.get()
    assert "installing broken into build/broken-venv (once)" in said
    assert "broken is not installed: " in said and "no-such-package" in said
    assert (tmp_path / "build" / "broken-venv" / "bin" / "python").exists()


def test_parts_with_peers_prepare_them():
    """A part whose module uses peers is in the list of those before which they are prepared."""
    using = {
        path.stem
        for path in pathlib.Path(loopback.__file__).parent.glob("*.py")
        if re.search(r"peers\.(TORCH|JAX|gloo_session|jax_session)", path.read_text())
    }
    assert using == benchmarks.__main__._WITH_PEERS
