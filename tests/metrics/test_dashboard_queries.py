"""The dashboard's expressions, as Prometheus itself reads them and answers them of a real job."""

import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pytest

from tests.cluster import Cluster, free_port, wait_until
from tests.debian import find_program
from tests.metrics.test_dashboard import targets
from tests.metrics.test_metrics import PROCESSES, SECONDS, exchange_until, free_ports, listens

# What Grafana puts in, for a scraper that comes each second.
VARIABLES = {"$job": ".+", "$__rate_interval": "10s"}
EXPRESSIONS = {f"{title}: {target['expr']}": target["expr"] for title, target in targets()}


def filled_in(expression):
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression
    return expression


def test_promtool_reads_each_expression(tmp_path):
    promtool = find_program("promtool", "prometheus")
    rules = [
        {"record": f"panel:{number}", "expr": filled_in(expression)}
        for number, expression in enumerate(EXPRESSIONS.values())
    ]
    file = tmp_path / "rules.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    command = [promtool, "check", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"\b{len(rules)} rules found", done.stdout), done.stdout


@pytest.fixture
def prometheus(tmp_path):
    """Starts a Prometheus that scrapes some ports each second; returns its port."""
    program = find_program("prometheus", "prometheus")
    started = []

    def start(ports):
        config = tmp_path / "prometheus.json"
        static = [{"targets": [f"127.0.0.1:{port}" for port in ports]}]
        jobs = [{"job_name": "training", "static_configs": static}]
        config.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}))
        port = free_port()
        command = [program, f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/data"]
        command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
        started.append(subprocess.Popen(command))
        wait_until(lambda: listens(port), SECONDS)
        return port

    yield start
    for process in started:
        process.kill()
        process.wait()


def answer(port, expression):
    """The samples of a query, now."""
    query = urllib.parse.urlencode({"query": filled_in(expression)})
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}") as got:
            return json.load(got)["data"]["result"]
    except urllib.error.HTTPError as error:
        if error.code == 503:  # it still starts
            return []
        raise AssertionError(f"{expression}: {error.read().decode()}") from error


def test_each_expression_has_samples_of_a_running_job(prometheus, tmp_path):
    first, stop = free_ports(), tmp_path / "stop"
    env = {"BYTEPS_METRICS_PORT": str(first)}
    with Cluster(exchange_until, workers=2, servers=1, env=env, args=[str(stop)]) as job:
        ports = range(first, first + PROCESSES)
        wait_until(lambda: all(map(listens, ports)), SECONDS)
        port = prometheus(ports)
        empty = dict(EXPRESSIONS)

        def all_answered():
            for name, expression in list(empty.items()):
                if answer(port, expression):
                    del empty[name]
            return not empty

        try:
            wait_until(all_answered, SECONDS)
        except AssertionError:
            raise AssertionError(f"these have no samples: {list(empty)}") from None
        stop.touch()
        assert all(outcome.code == 0 for outcome in job.wait(SECONDS))
