"""Metrics of a real job, scraped while it runs."""

import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import psutil
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

import tf_byteps
from tests.cluster import (
    ROOT,
    Cluster,
    clean_environment,
    free_port,
    run_workers,
    wait_until,
    worker_command,
)
from tf_byteps import _engine
from tf_byteps.metrics import names
from tf_byteps.metrics.job_sum import JobSum
from tf_byteps.metrics.reading import Reading

PROCESSES = 4  # scheduler, server, two workers
ELEMENTS = 1000
SECONDS = 40
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def exchange_until(stop_file, pause=0.0):
    """Exchanges one tensor again and again, after so many seconds; returns how often."""
    tf_byteps.init()
    rounds, going_on = 0, True
    while going_on:
        vote = np.array([float(os.path.exists(stop_file))], np.float32)
        going_on = _engine.exchange(vote, name="stop").wait(SECONDS)[0] == 0
        _engine.exchange(np.ones(ELEMENTS, np.float32), name="gradient/weights").wait(SECONDS)
        rounds += 1
        time.sleep(pause)
    counters = _engine.worker_counters()
    tf_byteps.shutdown()
    return [rounds, counters["exchanges"]]


def free_ports():
    """The first of some ports in a row that nobody uses, one for each process and one more."""
    return free_port(PROCESSES + 1)


def get(port, path="/metrics", method="GET", accept="*/*"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers={"Accept": accept})
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, answer.getheader("Content-Type"), body


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def scrape(first):
    """Samples of all processes: {(name, labels): value}."""
    samples = {}
    for port in range(first, first + PROCESSES):
        for family in parse(get(port)[2]):
            for sample in family.samples:
                samples[sample.name, frozenset(sample.labels.items())] = sample.value
    return samples


def value(samples, name, **labels):
    return samples["tf_byteps_" + name, frozenset((k, str(v)) for k, v in labels.items())]


def send_garbage(port, seconds, rate=50):
    """Requests that are none: noise, long lines, other methods and paths, closed half way."""
    kinds = (
        os.urandom(200),
        b"GET " + b"a" * 70000 + b"\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nContent-Length: 999999999\r\n\r\nx",
        b"GET /../../etc/passwd HTTP/1.1\r\n\r\n",
        b"GET /metrics HT",
    )
    end = time.monotonic() + seconds
    sent = 0
    while time.monotonic() < end:
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            try:
                connection.sendall(kinds[sent % len(kinds)])
            except OSError:
                pass  # refused already
        sent += 1
        time.sleep(1 / rate)
    return sent


def has_exchanged(first, rank):
    """Whether a worker has come so far; before it has joined, its values have another rank."""
    try:
        return value(scrape(first), "exchanges_ended_total", role="worker", rank=rank) > 10
    except KeyError:
        return False


def test_a_job_is_scraped_while_it_runs_and_garbage_does_nothing(tmp_path):
    first = free_ports()
    env = {"BYTEPS_METRICS_PORT": str(first)}
    stop = tmp_path / "stop"
    with Cluster(exchange_until, workers=2, servers=1, env=env, args=[str(stop)]) as job:
        wait_until(lambda: all(listens(first + n) for n in range(PROCESSES)), SECONDS)
        wait_until(lambda: all(has_exchanged(first, rank) for rank in (0, 1)), SECONDS)
        assert not listens(first + PROCESSES)
        before = scrape(first)
        processes = [psutil.Process(p.popen.pid) for p in [*job.workers, *job.servers]]
        for port in range(first, first + PROCESSES):
            send_garbage(port, 0.5)
        wait_until(lambda: all(p.num_threads() < 40 for p in processes))
        threads = [p.num_threads() for p in processes]
        memory = [p.memory_info().rss for p in processes]
        for port in range(first, first + PROCESSES):
            assert send_garbage(port, 1) > 10
        for process, had_threads, had in zip(processes, threads, memory):
            assert process.num_threads() <= had_threads + 8
            assert process.memory_info().rss < had + (8 << 20)
        after = scrape(first)
        status, kind, text = get(first, accept=OPENMETRICS)
        assert status == 200 and kind.startswith("application/openmetrics-text")
        assert list(parse_openmetrics(text))
        assert get(first, "/other")[0] == 404 and get(first, method="DELETE")[0] == 404
        stop.touch()
        outcomes = job.wait(SECONDS)
    assert not any("Traceback" in outcome.output for outcome in outcomes)
    results = [outcome.result for outcome in outcomes[-2:]]
    assert {name for name, _ in after if name.startswith("tf_byteps_")} == {
        metric.name for metric in names.METRICS
    }
    for (name, labels), had in before.items():
        if name.startswith("tf_byteps_") and name.endswith("_total"):
            assert after[name, labels] >= had, name
    for rank in (0, 1):
        own = {"role": "worker", "rank": rank}
        started = value(after, "exchanges_started_total", **own)
        ended = value(after, "exchanges_ended_total", **own)
        assert 0 <= started - ended <= 1
        assert ended > value(before, "exchanges_ended_total", **own), "garbage stopped the steps"
        assert value(after, "exchanges_failed_total", **own) == 0
        pushed = value(after, "pushed_bytes_total", **own)
        paths = [
            v
            for (n, at), v in after.items()
            if n == "tf_byteps_path_pushed_bytes_total"
            and ("role", "worker") in at
            and ("rank", str(rank)) in at
        ]
        assert sum(paths) == pushed > 0
        assert value(after, "arrivals_total", role="server", rank=0, worker=rank) > 0
        assert 0 < value(after, "exchanging_seconds_total", **own) < 1000
    assert results[0] == results[1]


def test_the_scheduler_serves_the_sum_of_all_processes(tmp_path):
    first = free_ports()
    env = {"BYTEPS_METRICS_PORT": str(first)}
    stop = tmp_path / "stop"
    with Cluster(exchange_until, workers=2, servers=1, env=env, args=[str(stop)]) as job:
        wait_until(lambda: all(listens(first + n) for n in range(PROCESSES)), SECONDS)
        port = next(p for p in range(first, first + PROCESSES) if "tf_byteps_job" in get(p)[2])
        wait_until(lambda: of_job(port, "read_processes") == 3, SECONDS)
        wait_until(lambda: of_job(port, "exchanges_ended_total") > 0, SECONDS)
        assert of_job(port, "unread_processes") == 0
        stopped = [process.popen.pid for process in [*job.workers, *job.servers]]
        for pid in stopped[:2]:
            os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: of_job(port, "unread_processes") == 2, SECONDS)
        counted = of_job(port, "exchanges_ended_total")
        assert counted > 0 and of_job(port, "credit_bytes") == 0
        for pid in stopped[:2]:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: of_job(port, "unread_processes") == 0, SECONDS)
        wait_until(lambda: of_job(port, "exchanges_ended_total") > counted, SECONDS)
        before = scrape(first)
        time.sleep(1.1)  # a sum is kept for a second
        summed, own = page(port, "/metrics"), page(port, "/process")
        after = scrape(first)
        stop.touch()
        assert all(outcome.code == 0 for outcome in job.wait(SECONDS))
    of_all = ("exchanges_ended_total", "pushed_bytes_total", "server_rounds_total")
    for name in (*of_all, "steps_total", "exposed_communication_seconds_total"):
        assert all_of(before, name) <= summed[f"tf_byteps_job_{name}"] <= all_of(after, name)
    assert summed["tf_byteps_job_credit_bytes"] > 0
    assert "tf_byteps_scheduler_failed" in own
    assert not any(name.startswith("tf_byteps_job") for name in own)


def page(port, path):
    return {s.name: s.value for family in parse(get(port, path)[2]) for s in family.samples}


def of_job(port, name):
    return page(port, "/metrics")[f"tf_byteps_job_{name}"]


def all_of(samples, name):
    return sum(v for (n, _), v in samples.items() if n == f"tf_byteps_{name}")


def test_a_worker_that_hosts_scheduler_and_server_adds_up_itself_too(tmp_path):
    first, stop = free_ports(), tmp_path / "stop"
    workers = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    processes = []
    try:
        for rank in range(2):
            task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
            env = clean_environment(
                TF_CONFIG=json.dumps(task),
                BYTEPS_METRICS_PORT=str(first),
                TESTS_RESULT_FILE=str(tmp_path / f"{rank}.json"),
            )
            command = worker_command(exchange_until, [str(stop)])
            processes.append(subprocess.Popen(command, env=env, cwd=ROOT))
        wait_until(lambda: listens(first) and listens(first + 1), SECONDS)
        port = next(p for p in (first, first + 1) if "tf_byteps_job" in get(p)[2])
        wait_until(lambda: of_job(port, "read_processes") == 2, SECONDS)
        wait_until(lambda: of_job(port, "server_rounds_total") > 0, SECONDS)
        stop.touch()
        assert [process.wait(SECONDS) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_job_that_listens_everywhere_is_added_up(tmp_path):
    first, stop = free_ports(), tmp_path / "stop"
    env = {"BYTEPS_METRICS_PORT": str(first), "BYTEPS_METRICS_ADDRESS": "0.0.0.0"}
    env["DMLC_NODE_HOST"] = "localhost"
    with Cluster(exchange_until, workers=2, servers=1, env=env, args=[str(stop)]) as job:
        wait_until(lambda: all(listens(first + n) for n in range(PROCESSES)), SECONDS)
        port = next(p for p in range(first, first + PROCESSES) if "tf_byteps_job" in get(p)[2])
        wait_until(lambda: of_job(port, "read_processes") == 3, SECONDS)
        stop.touch()
        assert all(outcome.code == 0 for outcome in job.wait(SECONDS))
    alone = {"BYTEPS_METRICS_PORT": str(first), "BYTEPS_METRICS_ADDRESS": "0.0.0.0"}
    assert run_workers(count_alone, workers=1, servers=0, env=alone) == [[3, 3, 0, []]]


def reading(count):
    samples = {
        ("tf_byteps_pushed_bytes_total", ()): count,
        ("tf_byteps_in_flight_bytes", ()): 5.0,
        ("tf_byteps_path_pushed_bytes_total", (0, 0)): count,
    }
    return Reading(0.0, {("worker", 0): samples}, {})


def test_sums_of_counters_never_fall():
    added = JobSum()

    def take(present, **counts):
        values = added.take({name: reading(count) for name, count in counts.items()}, present)
        return [
            values[key] for key in ("tf_byteps_pushed_bytes_total", "tf_byteps_in_flight_bytes")
        ] + [values["read_processes"], values["unread_processes"]]

    assert take({"a": 1, "b": 1}, a=10.0, b=20.0) == [30, 10, 2, 0]
    assert take({"a": 1, "b": 1}, a=11.0) == [31, 5, 1, 1]  # b does not answer
    assert take({"a": 1, "b": 1}, a=2.0, b=20.0) == [33, 10, 2, 0]  # a counts anew
    assert take({"a": 1, "c": 1}, a=2.0, c=1.0) == [34, 10, 2, 0]  # c has come, b has gone
    assert take({}) == [34, 0, 0, 0]


def just_train():
    tf_byteps.init()
    total = _engine.exchange(np.ones(3, np.float32), name="x").wait(SECONDS)
    return total.tolist()


def assert_trains_without(env, expected):
    with Cluster(just_train, workers=2, servers=1, env=env) as job:
        outcomes = job.wait(SECONDS)
    assert [o.result for o in outcomes if o.label.startswith("worker")] == [[2, 2, 2]] * 2
    for outcome in outcomes:
        lines = [line for line in outcome.output.splitlines() if "serves no metrics" in line]
        assert len(lines) == 1 and expected in lines[0], outcome.output


def test_a_bad_port_gives_one_sentence_and_training_goes_on():
    for bad in ("0", "99999", "http"):
        expected = f"BYTEPS_METRICS_PORT is '{bad}', but must be a whole number"
        assert_trains_without({"BYTEPS_METRICS_PORT": bad}, expected)


def test_ports_in_use_give_one_sentence_and_training_goes_on():
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 65535))
        taken.listen()
        env = {"BYTEPS_METRICS_PORT": "65535"}
        assert_trains_without(env, "ports 65535 to 65535 of 127.0.0.1 cannot be used")


def test_an_address_that_is_not_ours_gives_one_sentence():
    env = {"BYTEPS_METRICS_PORT": "21000", "BYTEPS_METRICS_ADDRESS": "192.0.2.1"}
    assert_trains_without(env, "of 192.0.2.1 cannot be used")


def count_alone():
    tf_byteps.init()
    for _ in range(3):
        _engine.exchange(np.ones(3, np.float32), name="x").wait(SECONDS)
    values = _engine.worker_counters()
    return [values[k] for k in ("started_exchanges", "exchanges", "failed_exchanges", "paths")]


def compressed_and_not():
    tf_byteps.init()
    values = np.linspace(-1, 1, 100_000, dtype=np.float32)
    counted = []
    for codec in ("", "int8"):
        _engine.exchange(values, name=f"x{codec}", codec=codec).wait(SECONDS)
        counters = _engine.worker_counters()
        counted.append([counters["uncompressed_bytes"], counters["pushed_bytes"]])
    return counted


def test_what_compression_saves_is_counted():
    for before, after in run_workers(compressed_and_not):
        assert before[0] == before[1] >= 400_000
        uncompressed, pushed = after[0] - before[0], after[1] - before[1]
        assert uncompressed == 400_000 and 3.5 < uncompressed / pushed < 4


def test_a_worker_alone_counts_too():
    assert run_workers(count_alone, workers=1, servers=0) == [[3, 3, 0, []]]


def test_the_documentation_has_the_list():
    command = [sys.executable, "-m", "tf_byteps.metrics"]
    done = subprocess.run(
        command, env=clean_environment(), cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == names.markdown() + "\n"
    text = pathlib.Path(ROOT, "docs", "metrics.md").read_text()
    assert names.markdown() in text, "put what python -m tf_byteps.metrics prints into it"


def test_names_follow_the_conventions_of_prometheus():
    listed = [metric.name for metric in names.METRICS]
    assert len(set(listed)) == len(listed)
    for metric in names.METRICS:
        assert metric.name.endswith("_total") == (metric.kind == names.COUNTER)
        stem = metric.name.removesuffix("_total")
        assert "bytes" not in stem or stem.endswith("_bytes")
        assert "seconds" not in stem or stem.endswith("_seconds")


def launch(*arguments):
    program = "import os; print('port', os.environ['BYTEPS_METRICS_PORT'])"
    command = [sys.executable, "-m", "tf_byteps.launch", "-np", "1", *arguments]
    command += [sys.executable, "-c", program]
    return subprocess.run(
        command, env=clean_environment(), cwd=ROOT, capture_output=True, text=True, timeout=SECONDS
    )


def test_bpslaunch_tells_all_processes_the_port():
    assert "port 9400" in launch("--metrics-port", "9400").stdout
    for bad in ("0", "65536", "http"):
        done = launch("--metrics-port", bad)
        assert done.returncode == 2 and bad in done.stderr.splitlines()[-1]
