"""bpslaunch on this machine: places, variables, output, and wrong use."""

import re
import signal
import subprocess
import sys

import pytest

import tf_byteps
from tests.cluster import ROOT, clean_environment, free_port
from tests.terminals import shown_on_a_terminal
from tf_byteps.launch.hosts import address_for


@pytest.mark.parametrize("servers", [0, 1, 2])
def test_a_job_trains(launch, program, servers):
    running = launch("-np", "2", "--servers", str(servers), *program("train"))
    assert running.wait() == 0, running.err
    for rank in range(2):
        assert f"[worker {rank}] trained {rank} 2 {rank} 2 1.0\n" in running.out


def test_one_worker_needs_nothing_else(launch, program):
    running = launch("-np", "1", "--verbose", "--", *program("train"))
    assert running.wait() == 0
    assert running.out == "[worker 0] trained 0 1 0 1 0.0\n"
    assert "scheduler" not in running.err


def test_two_jobs_at_once(launch, program):
    jobs = [launch("-np", "2", "--servers", "1", *program("train")) for _ in range(2)]
    assert [job.wait() for job in jobs] == [0, 0]
    for job in jobs:
        assert job.out.count("trained") == 2


def test_a_missing_program(launch):
    running = launch("-np", "2", "no-such-program")
    assert running.wait() == 127
    assert "cannot start 'no-such-program': No such file or directory" in running.err


def test_output_has_prefixes_and_keeps_its_stream(launch):
    script = "echo to out; echo to err >&2; printf 'no end'"
    running = launch("-np", "2", "sh", "-c", script)
    assert running.wait() == 0
    for rank in range(2):
        assert f"[worker {rank}] to out\n" in running.out
        assert f"[worker {rank}] no end" in running.out
        assert f"[worker {rank}] to err\n" in running.err
    assert "to err" not in running.out and "to out" not in running.err
    assert running.out.endswith("\n")


def test_a_line_without_an_end_is_shown_soon(launch):
    running = launch("-np", "1", "sh", "-c", "printf 'continue? '; sleep 600")
    running.wait_for("[worker 0] continue? ")
    running.send()
    assert running.wait() == 130


def test_workers_get_their_place_and_variables(launch):
    names = ["DMLC_ROLE", "DMLC_NUM_WORKER", "BYTEPS_LOCAL_RANK", "BYTEPS_GLOBAL_SIZE"]
    script = "echo " + " ".join(f"${name}" for name in [*names, "MINE", "GIVEN", "TF_CONFIG"])
    arguments = ["-np", "2", "--env", "GIVEN=a b", "sh", "-c", script]
    running = launch(*arguments, MINE="mine", TF_CONFIG="{}", DMLC_ROLE="worker")
    assert running.wait() == 0
    for rank in range(2):
        assert f"[worker {rank}] worker 1 {rank} 2 mine a b\n" in running.out


def test_a_variable_without_effect_is_said_once(launch, program):
    running = launch(
        *("-np", "2", "--servers", "1", *program("train")),
        BYTEPS_PARTITON_BYTES="4",
        BYTEPS_SCHEDULING_CREDIT="4",
    )
    assert running.wait() == 0
    lines = [line for line in running.err.splitlines() if "CREDIT" in line or "no setting" in line]
    assert len(lines) == 2
    for line in lines:  # with time and level, as those of servers
        assert re.match(r"\[worker 0\] \d{4}-\S+ \S+ WARNING tf_byteps: ", line), line


def test_every_job_has_a_secret_of_its_own(launch, tmp_path):
    path = tmp_path / "secret"
    path.write_text("a secret that the user has chosen\n")
    path.chmod(0o600)
    found = []
    for variables in ({}, {}, {"BYTEPS_JOB_SECRET_FILE": str(path)}):
        command = ["sh", "-c", 'echo "$BYTEPS_JOB_SECRET|$BYTEPS_JOB_SECRET_FILE"']
        running = launch("-np", "2", "--servers", "1", *command, **variables)
        assert running.wait() == 0, running.err
        of_workers = {line.partition("] ")[2] for line in running.out.splitlines()}
        assert len(of_workers) == 1
        found += of_workers
    assert len(set(found)) == 3 and len(found[0]) == len(found[1]) == 65
    assert found[2] == "a secret that the user has chosen|"


@pytest.mark.parametrize(
    "arguments, code, expected",
    [
        ([], 2, "-np is missing"),
        (["true", "-np", "2"], 2, "-np behind the command is the program's"),
        (["-np", "2"], 2, "the command that the workers run is missing"),
        (["-np", "0", "true"], 2, "0 is not at least 1"),
        (["-np", "two", "true"], 2, "argument -np/--np/--workers: 'two' is not a whole number"),
        (["-np", "2", "--grace", "-3", "true"], 2, "--grace: -3 is not a number of seconds"),
        (["-np", "2", "--min-np", "3", "true"], 2, "--min-np 3 is more than the 2 workers at most"),
        (["-H", "a:x", "true"], 2, "'a:x' is not of the form"),
        (["-H", "a,a", "true"], 2, "a is listed 2 times"),
        (
            ["-np", "3", "-H", "localhost:2", "true"],
            2,
            "localhost:2 takes only 2 workers: allow more with -H",
        ),
        (["-np", "1", "--env", "NOT_THERE", "true"], 2, "there is no such variable here"),
        (["-H", "me@nobody.invalid:2", "true"], 2, "the name 'nobody.invalid' cannot be resolved"),
        (["-H", "no-such-host.invalid:2", "true"], 2, "is the host name right? If only ssh"),
        (["-H", "::1", "true"], 2, "; IPv6 addresses stand in brackets"),
        (["--nproc_per_node", "2", "train.py"], 2, "its place bpslaunch has -np, the number of"),
        (["--num_processes=2", "train.py"], 2, "--num_processes is another launcher's option"),
        (["--no-such-option", "train.py"], 2, "unrecognized arguments: --no-such-option"),
        (["-np", "1", "--env", "FOO BAR=1", "true"], 2, "'FOO BAR' is no variable's name"),
        (["-np", "2", "python3", "-u", "-"], 2, "reads its program from standard input"),
        (["-np", "2", "python"], 2, "python reads its program from standard input"),
        (["-np", "2", "--env", "BYTEPS_JOB_SECRET=x", "true"], 2, "can see a command line"),
    ],
)
def test_wrong_use(launch, arguments, code, expected):
    running = launch(*arguments)
    assert running.wait() == code
    assert expected in running.err
    assert "Traceback" not in running.err


def test_what_is_wrong_is_said_before_what_starts(launch):
    running = launch("-H", "no-such-host.invalid:2", "true")
    assert running.wait() == 2
    assert running.err.count("\n") == 1


def test_the_user_of_a_host_is_no_part_of_its_name():
    assert address_for(["root@localhost"]) == "127.0.0.1"


def test_a_dry_run_starts_nothing(launch, tmp_path):
    command = ("touch", str(tmp_path / "begun"))
    running = launch("-np", "2", "--servers", "1", "--dry-run", *command)
    assert running.wait() == 0
    first, second, *lines = running.out.splitlines()
    assert first == "# 2 workers on 1 host (CPU), 1 server, TLS off"
    assert second.startswith("# Nothing is started. The scheduler will choose its port")
    places = [line for line in lines if line.startswith("#")]
    names = ["scheduler", "server 0", "worker 0", "worker 1"]
    assert places == [f"# {name} on localhost" for name in names]
    assert "SECRET" not in running.out
    assert not (tmp_path / "begun").exists()


def test_a_dry_run_is_a_script_that_fits_a_terminal(launch):
    """What it prints of a process can be pasted into a shell."""
    said = ("sh", "-c", 'echo "$BYTEPS_GLOBAL_RANK of $BYTEPS_GLOBAL_SIZE: $1"', "sh", "a 'b' " * 3)
    running = launch("-np", "2", "--dry-run", *said)
    assert running.wait() == 0, running.err
    assert max(map(len, running.out.splitlines())) <= 80, running.out
    of_workers = running.out[running.out.index("# worker 0 ") :]
    done = subprocess.run(["sh", "-c", of_workers], capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"{rank} of 2: {said[-1]}" for rank in range(2)]
    assert done.stderr == ""


def test_a_dry_run_on_several_hosts(launch):
    arguments = ("-H", "127.0.0.2:1,localhost:1", "--env", "DMLC_PS_ROOT_PORT=20001")
    running = launch(*arguments, "--dry-run", "env", "--dry-run")
    assert running.wait() == 0, running.err
    assert "# worker 0 on 127.0.0.2 by ssh\n" in running.out
    assert running.out.count("DMLC_PS_ROOT_PORT=20001") == 3
    assert running.out.count("env --dry-run\n") == 2
    running = launch("--min-np", "1", "--max-np", "2", "--dry-run", "env")
    assert running.wait() == 0 and running.out.count(" on localhost\n") == 3


@pytest.mark.parametrize(
    "words, expected",
    [
        (["kubernetez"], "no program 'kubernetez': did you mean --dry-run kubernetes?"),
        (["JobSet", "env"], "no program 'JobSet': did you mean --dry-run jobset?"),
        (["train", "env"], "no program 'train': did you mean --dry-run trainjob?"),
        (["no-such-program"], "cannot start 'no-such-program': there is no such program"),
        (["tests/cluster.py"], "it is a script. Start it with python: python tests/cluster.py"),
    ],
)
def test_a_dry_run_of_what_is_not_there(launch, words, expected):
    running = launch("-np", "2", "--dry-run", *words)
    assert running.wait() == 2
    assert expected in running.err and running.out == ""


def test_a_dry_run_of_what_only_other_hosts_may_have(launch):
    running = launch("-H", "127.0.0.2:1", "--dry-run", "processes", "no-such-program")
    assert running.wait() == 0, running.err
    assert "no-such-program\n" in running.out


def test_a_script_is_started_with_python(launch, tmp_path):
    (tmp_path / "train.py").write_text("print(1)")
    running = launch("-np", "2", f"{tmp_path}/train.py", "--fast")
    assert running.wait() == 127
    assert f"it is a script. Start it with python: python {tmp_path}/train.py --fast" in running.err


def test_the_version(launch):
    running = launch("--version")
    assert running.wait() == 0 and running.out == f"tf_byteps {tf_byteps.__version__}\n"


def test_the_package_is_bpslaunch(capfd):
    done = subprocess.run([sys.executable, "-m", "tf_byteps", "-np", "1", "echo", "said"])
    assert done.returncode == 0 and "said" in capfd.readouterr().out


def test_ssh_is_not_installed(launch, tmp_path):
    running = launch(
        *("-np", "2", "-H", "127.0.0.2:2", "--scheduler-host", "127.0.0.1", "true"),
        PATH=str(tmp_path),
    )
    assert running.wait() == 2
    assert "cannot run ssh, to start worker 0 on 127.0.0.2: No such file" in running.err
    assert "Traceback" not in running.err


def test_nobody_joins(launch):
    """Worker 0 works alone for a while: it waits for nobody."""
    command = "[ $BYTEPS_GLOBAL_RANK = 0 ] && sleep 8; echo done"
    running = launch("-np", "2", "--servers", "1", "sh", "-c", command)
    assert running.wait() == 0
    assert running.out.count("done") == 2
    assert "no worker has joined the job: each has run alone" in running.err


@pytest.mark.parametrize("module", ["server", "scheduler"])
def test_roles_explain_themselves(module):
    command = [sys.executable, "-m", f"tf_byteps.{module}", "--help"]
    result = subprocess.run(command, capture_output=True, text=True, env=clean_environment())
    assert result.returncode == 0 and result.stderr == ""
    assert f"python -m tf_byteps.{module}" in result.stdout
    assert "Ends with code 0 when the job has ended" in " ".join(result.stdout.split())


def test_nobody_reads_the_configuration():
    command = f"{sys.executable} -m tf_byteps.config | true; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=clean_environment()
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_a_scheduler_that_cannot_start(launch):
    running = launch("-np", "2", "--scheduler-host", "127.0.0.1", "true", BYTEPS_IO_THREADS="x")
    assert running.wait() == 1
    assert "[scheduler]" in running.err and 'BYTEPS_IO_THREADS is "x"' in running.err
    reported = "the scheduler did not start: it ended with exit code 1: its own lines above say why"
    assert reported in running.err


def test_prefixes_are_coloured_on_a_terminal():
    launch = [sys.executable, "-m", "tf_byteps.launch", "-np", "1", "echo", "hi"]
    output = shown_on_a_terminal("env", "-u", "NO_COLOR", *launch, TERM="xterm-256color")
    assert "\x1b[" in output and "[worker 0]" in output and "hi" in output


def test_nobody_reads_the_output():
    """`bpslaunch ... | head -1` ends, and ends its processes."""
    command = [sys.executable, "-m", "tf_byteps.launch", "-np", "2", "yes"]
    running = subprocess.Popen(
        command, cwd=ROOT, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert running.stdout.readline().endswith(b"] y\n")
    running.stdout.close()
    assert running.wait(60) == 128 + signal.SIGPIPE
    err = running.stderr.read()
    running.stderr.close()
    assert b"Traceback" not in err, err


class TestOneRole:
    """DMLC_ROLE without -np, as BytePS's own launcher is used."""

    def place(self, **variables):
        return {
            "DMLC_PS_ROOT_URI": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": self.port,
            "DMLC_NUM_WORKER": "2",
            "DMLC_NUM_SERVER": "1",
            **variables,
        }

    @pytest.fixture(autouse=True)
    def choose_port(self):
        self.port = str(free_port())

    def test_a_job_begun_by_hand(self, launch, program):
        jobs = [
            launch(*program("train"), **self.place(DMLC_ROLE="worker", DMLC_WORKER_ID=str(machine)))
            for machine in range(2)
        ]
        jobs += [launch(**self.place(DMLC_ROLE=role)) for role in ("server", "scheduler")]
        assert [job.wait() for job in jobs] == [0, 0, 0, 0], "\n".join(job.err for job in jobs)
        for rank in range(2):
            assert f"trained {rank} 2 {rank} 2 1.0" in jobs[rank].out

    def test_several_workers_on_each_machine(self, launch, program):
        """The scheduler is not told how many: it hears it from the workers."""
        jobs = [
            launch(
                *program("train"),
                **self.place(
                    DMLC_ROLE="worker",
                    DMLC_WORKER_ID=str(machine),
                    BYTEPS_LOCAL_SIZE="2",
                    BYTEPS_HOST_ID=f"machine {machine}",
                ),
            )
            for machine in range(2)
        ]
        jobs += [launch(**self.place(DMLC_ROLE=role)) for role in ("server", "scheduler")]
        assert [job.wait() for job in jobs] == [0, 0, 0, 0], "\n".join(job.err for job in jobs)
        for machine in range(2):
            for local_rank in range(2):
                rank = 2 * machine + local_rank
                line = f"[worker {rank}] trained {rank} 4 {local_rank} 2 6.0"
                assert line in jobs[machine].out

    def test_ranks_from_the_scheduler(self, launch, program):
        """Without DMLC_WORKER_ID."""
        jobs = [launch(*program("train"), **self.place(DMLC_ROLE="worker")) for _ in range(2)]
        jobs += [launch(**self.place(DMLC_ROLE=role)) for role in ("server", "scheduler")]
        assert [job.wait() for job in jobs] == [0, 0, 0, 0], "\n".join(job.err for job in jobs)
        assert {job.out.split()[3] for job in jobs[:2]} == {"0", "1"}

    def test_a_worker_needs_a_command(self, launch):
        running = launch(**self.place(DMLC_ROLE="worker"))
        assert running.wait() == 2
        assert "the command that the workers run is missing" in running.err

    def test_a_wrong_environment_is_named(self, launch):
        running = launch(DMLC_ROLE="server")
        assert running.wait() == 2
        assert "DMLC_PS_ROOT_URI" in running.err
