"""--log-dir: each run has a folder of its own there, and what another has written stays."""

import re

_HEADER = r"\n--- \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S+: sh -c 'echo [a-z]+; exit \d' ---\n"


def _say(text, code=0):
    return "sh", "-c", f"echo {text}; exit {code}"


def test_a_log_file_for_each_process(launch, program, tmp_path):
    folder = tmp_path / "logs" / "today"
    arguments = ["-np", "2", "--servers", "1", "--log-dir", str(folder), "--verbose"]
    running = launch(*arguments, *program("train"))
    assert running.wait() == 0
    names = ["job.json", "scheduler.log", "server-0.log", "worker-0.log", "worker-1.log"]
    assert sorted(path.name for path in (folder / "run-0001").iterdir()) == names
    for rank in range(2):
        text = (folder / "run-0001" / f"worker-{rank}.log").read_text()
        assert text == f"trained {rank} 2 {rank} 2 1.0\n"
        assert f"[worker {rank}] trained" in running.out


def test_both_streams_are_in_the_log_file(launch, tmp_path):
    running = launch("-np", "1", "--log-dir", str(tmp_path), "sh", "-c", "echo a; echo b >&2")
    assert running.wait() == 0
    assert sorted((tmp_path / "latest" / "worker-0.log").read_text().split()) == ["a", "b"]


def test_the_log_of_a_crash_outlives_the_same_command(launch, tmp_path):
    (tmp_path / "worker-0.log").write_text("of an older version\n")
    for number, (text, code) in enumerate([("crash", 3), ("well", 0)], 1):
        running = launch("-np", "1", "--log-dir", str(tmp_path), *_say(text, code))
        assert running.wait() == code
        assert f"; logs in {tmp_path}/run-000{number}" in running.err
        assert (tmp_path / "latest").readlink().name == f"run-000{number}"
    assert (tmp_path / "run-0001" / "worker-0.log").read_text() == "crash\n"
    assert (tmp_path / "run-0002" / "worker-0.log").read_text() == "well\n"
    assert (tmp_path / "worker-0.log").read_text() == "of an older version\n"


def test_two_jobs_at_once_share_a_folder(launch, tmp_path):
    """In one job of Slurm, too, and with one command."""
    hold = f"echo said; until test -e {tmp_path}/end; do sleep 0.1; done"
    jobs = []
    for _ in range(2):
        arguments = ("-np", "1", "--log-dir", str(tmp_path / "logs"), "sh", "-c", hold)
        jobs.append(launch(*arguments, SLURM_JOB_ID="7"))
        jobs[-1].wait_for("said")
    (tmp_path / "end").touch()
    assert [job.wait() for job in jobs] == [0, 0]
    for number in (1, 2):
        text = (tmp_path / "logs" / f"run-000{number}" / "worker-0.log").read_text()
        assert text == "said\n"


def test_a_requeued_job_goes_on_with_its_files(launch, tmp_path):
    for job, text in [("7", "first"), ("8", "other"), ("7", "first"), ("7", "second")]:
        arguments = ("-np", "1", "--log-dir", str(tmp_path), *_say(text))
        assert launch(*arguments, SLURM_JOB_ID=job).wait() == 0
    first, other, second = (
        (tmp_path / f"run-000{number}" / "worker-0.log").read_text() for number in (1, 2, 3)
    )
    assert re.fullmatch(f"first\n{_HEADER}first\n", first), first
    assert (other, second) == ("other\n", "second\n")


def test_a_process_that_is_started_again_goes_on_with_its_file(launch, program, tmp_path):
    """A server that was killed."""
    settings = ("-np", "2", "--servers", "2", "--server-restarts", "1")
    logs = ("--log-dir", str(tmp_path / "logs"))
    running = launch(*settings, *logs, *program("exchange_for", "4"), BYTEPS_LOG_LEVEL="INFO")
    running.wait_for("exchanging", 2)
    servers = [p for p in running.processes() if p.cmdline()[1:3] == ["-m", "tf_byteps.server"]]
    servers[0].kill()
    assert running.wait() == 0, running.err
    texts = [path.read_text() for path in (tmp_path / "logs" / "latest").glob("server-*")]
    (text,) = (text for text in texts if " -m tf_byteps.server --stay ---\n" in text)
    assert all(text.split("\n--- "))  # the first one's lines, then the second one's
