"""What bpslaunch says of a job, where output goes, and which hosts and modules it takes."""

import datetime
import json
import re
import sys

import pytest

from tf_byteps.errors import ConfigError
from tf_byteps.launch.hosts import parse_hosts, read_hostfile
from tf_byteps.launch.output import read_ranks

_SPEAK = 'echo "out of $BYTEPS_GLOBAL_RANK"; echo "err of $BYTEPS_GLOBAL_RANK" >&2'


def test_a_headline_and_a_summary(launch, program):
    running = launch("-np", "2", "--servers", "1", *program("train"))
    assert running.wait() == 0
    first, *_, last = running.err.splitlines()
    assert first == "bpslaunch: 2 workers on 1 host (CPU), 1 server, TLS off"
    assert last.startswith("bpslaunch: 2 of 2 workers ended with code 0, after ")


def test_another_backend_of_keras_is_told(launch):
    running = launch("-np", "1", "true", KERAS_BACKEND="torch")
    assert running.wait() == 0
    assert (
        "WARNING KERAS_BACKEND is torch, but tf_byteps trains with tensorflow or jax only"
        in running.err
    )


def test_nothing_is_told_of_a_backend_that_works(launch):
    running = launch("-np", "1", "true", KERAS_BACKEND="jax")
    assert running.wait() == 0
    assert "KERAS_BACKEND" not in running.err


def test_the_headline_knows_tls_and_elastic_jobs(launch):
    running = launch("--min-np", "1", "--max-np", "2", "--tls", "true")
    running.wait_for_error(
        "bpslaunch: 1 to 2 workers on 1 host (CPU), servers inside the workers, TLS on"
    )
    assert running.wait() == 0


def test_the_summary_counts_who_failed(launch):
    running = launch("-np", "1", "sh", "-c", "exit 3")
    assert running.wait() == 3
    assert running.err.splitlines()[-1].startswith("bpslaunch: 0 of 1 worker ended with code 0")
    assert running.err.endswith("; failed: worker 0\n")


def test_the_summary_names_who_failed_first_and_nobody_that_was_ended(launch, program):
    running = launch("-np", "2", "--servers", "1", *program("fail", "5"))
    assert running.wait() == 5
    assert running.err.splitlines()[-1].endswith("; failed: worker 1")


def test_the_summary_of_an_elastic_job_names_whom_it_went_on_without(launch, tmp_path):
    script = f"test -e {tmp_path}/once || {{ touch {tmp_path}/once; exit 3; }}; sleep 1"
    running = launch("--min-np", "1", "--max-np", "1", "sh", "-c", script)
    assert running.wait() == 0
    last = running.err.splitlines()[-1]
    assert last.startswith("bpslaunch: 1 of 2 workers ended with code 0")
    assert last.endswith("; failed: worker 0")


def test_the_summary_has_what_workers_have_counted(launch, program, tmp_path):
    logs, trace = tmp_path / "logs", tmp_path / "trace.json"
    files = "--log-dir", logs, "--env", f"BYTEPS_TIMELINE={trace}"
    running = launch("-np", "2", "--servers", "1", "--quiet", *files, *program("train_steps", "5"))
    assert running.wait() == 0
    (line,) = running.err.splitlines()
    steps = r"4 steps of \d+\.\d ms, \d+% of it exposed communication"
    sent = r"20\.0 KB sent per worker"
    files = f"timeline in {trace}; logs in {logs}/run-0001"
    assert re.search(f"; {steps}; {sent}; {files}$", line), line


def test_the_summary_says_how_many_workers_it_is_of(launch, program):
    running = launch("-np", "2", "--servers", "1", *program("train_steps", "5", "kill"))
    assert running.wait() != 0
    line = running.err.splitlines()[-1]
    assert "KB sent per worker (of 1 of 2 workers)" in line and line.endswith("; failed: worker 1")


def test_quiet_is_one_line_when_all_is_well(launch, program):
    running = launch("-np", "2", "--servers", "1", "--quiet", *program("train"))
    assert running.wait() == 0
    (line,) = running.err.splitlines()
    assert line.startswith("bpslaunch: 2 of 2 workers ended with code 0, after ")
    assert launch("-np", "1", "--quiet", "--verbose", "true").wait() == 2


def test_only_the_ranks_that_are_asked_for_are_shown(launch, tmp_path):
    arguments = ["-np", "4", "--show", "0,2-3", "--log-dir", str(tmp_path)]
    running = launch(*arguments, "sh", "-c", _SPEAK)
    assert running.wait() == 0
    for rank in range(4):
        for text, shown in (("out", running.out), ("err", running.err)):
            assert (f"[worker {rank}] {text} of {rank}" in shown) == (rank != 1)
    assert "out of 1" in (tmp_path / "latest" / "worker-1.log").read_text()


def test_a_line_that_is_shown_and_never_ends_is_a_last_line(launch):
    """It has been printed when its process ends."""
    script = "[ $BYTEPS_GLOBAL_RANK = 0 ] || exec sleep 60; printf 'no end'; sleep 2; exit 3"
    running = launch("-np", "2", "sh", "-c", script)
    assert running.wait() == 3
    assert running.out == "[worker 0] no end\n" and "bpslaunch:   no end\n" in running.err


def test_a_worker_that_is_not_shown_and_fails_is(launch):
    running = launch("-np", "2", "--show", "0", "sh", "-c", f"{_SPEAK}; exit $BYTEPS_GLOBAL_RANK")
    assert running.wait() == 1
    assert "the last lines of worker 1:" in running.err and "err of 1" in running.err


def test_lines_with_the_time(launch, tmp_path):
    """Also the lines of bpslaunch; log files have what processes have printed."""
    arguments = ["-np", "2", "--timestamps", "--log-dir", str(tmp_path)]
    begin = datetime.datetime.now().astimezone()
    running = launch(*arguments, "sh", "-c", _SPEAK)
    assert running.wait() == 0
    lines = [*running.out.splitlines(), *running.err.splitlines()]
    times = []
    for line in lines:
        time, prefix = re.fullmatch(r"(\S+ \S+) (\[worker \d\]|bpslaunch:) .*", line).groups()
        times.append(datetime.datetime.fromisoformat(time))
    assert len(lines) > 5
    assert begin - datetime.timedelta(seconds=1) < min(times)
    assert max(times) <= datetime.datetime.now().astimezone()
    assert "out of 1" in (tmp_path / "latest" / "worker-1.log").read_text().splitlines()


def test_a_module_with_arguments(launch):
    running = launch("-np", "1", "-m", "tests.launch.programs", "train")
    assert running.wait() == 0
    assert "trained 0 1 0 1 0.0" in running.out
    running = launch("-np", "1", "-m", "tf_byteps.config", "--markdown")
    assert running.wait() == 0 and "* **`DMLC_ROLE`** (`role`): " in running.out


def test_a_hostfile(launch, program, tmp_path):
    path = tmp_path / "hosts"
    path.write_text("# two of them\nlocalhost slots=2  # this machine\n\n")
    running = launch("--hostfile", str(path), *program("train"))
    assert running.wait() == 0, running.err
    assert running.out.count("trained") == 2


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a:4\nb\nc slots=2\n[::1]:3\n", [("a", 4), ("b", 1), ("c", 2), ("::1", 3)]),
        ("  a   slots = 3  # many\n", [("a", 3)]),
    ],
)
def test_forms_of_a_hostfile(tmp_path, text, expected):
    path = tmp_path / "hosts"
    path.write_text(text)
    assert [(host.name, host.slots) for host in read_hostfile(path)] == expected


@pytest.mark.parametrize(
    "text, reason",
    [
        ("", "names no host"),
        ("a slots=two\n", "line 1: 'a slots=two' is not of the form"),
        ("a\n\nb:0\n", "line 3: 'b:0'"),
        ("a\na:2\n", "a is listed 2 times"),
    ],
)
def test_a_wrong_hostfile(launch, tmp_path, text, reason):
    path = tmp_path / "hosts"
    path.write_text(text)
    running = launch("--hostfile", str(path), "true")
    assert running.wait() == 2 and reason in running.err


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["--hostfile", "/no/such/file"], "cannot be read: No such file"),
        (["--hostfile", "/dev/null", "-H", "a"], "-H and --hostfile both say"),
        (["-np", "2", "--show", "0-x"], "'0-x' is neither a rank nor a range"),
        (["-np", "2", "--log-dir", "/dev/null/logs"], "--log-dir /dev/null/logs cannot be created"),
    ],
)
def test_wrong_use(launch, arguments, reason):
    running = launch(*arguments, "true")
    assert running.wait() == 2 and reason in running.err


def test_an_unknown_host_of_a_hostfile(launch, tmp_path):
    path = tmp_path / "hosts"
    path.write_text("no-such-host.invalid:2\n")
    running = launch("--hostfile", str(path), "true")
    assert running.wait() == 2
    assert "the name 'no-such-host.invalid' cannot be resolved" in running.err


def test_ranks():
    assert read_ranks("0,4-6") == {0, 4, 5, 6}
    assert read_ranks("all") is None
    for text in ("", "a", "1-", "-1"):
        with pytest.raises(ConfigError, match="--show"):
            read_ranks(text)


def test_addresses_of_ipv6():
    assert [(h.name, h.slots) for h in parse_hosts("[::1]:2,b")] == [("::1", 2), ("b", 1)]
    with pytest.raises(ConfigError):
        parse_hosts("::1:2")


def test_the_module_runs_with_the_same_python(launch):
    running = launch("-np", "1", "-m", "platform")
    assert running.wait() == 0 and sys.platform in running.out.lower()


def test_lines_that_are_objects_go_out_as_they_are(launch):
    code = "from tests.logs.test_logs import says_something; says_something()"
    command = [sys.executable, "-c", code]
    running = launch("-np", "1", *command, BYTEPS_LOG_FORMAT="json", BYTEPS_LOG_LEVEL="INFO")
    assert running.wait() == 0, running.err
    lines = [line for line in running.err.splitlines() if "über" in line]
    assert [json.loads(line)["rank"] for line in lines] == [0]
    assert "[worker 0] in between\n" in running.err
