"""How a job of bpslaunch ends: by failures, by signals, and by itself."""

import signal
import subprocess
import sys

import psutil
import pytest

from tests.cluster import ROOT, all_gone, clean_environment, wait_until
from tests.selection import some_extended


def sleeping_processes(running):
    """All processes of a job of two sleep_with_children and one server."""
    running.wait_for("sleeping", 2)
    # Guards, processes, and each worker's shell and two children of it.
    wait_until(lambda: len(running.processes()) >= 4 + 4 + 2 * 3)
    return running.processes()


def test_the_exit_code_is_that_of_the_first_that_failed(launch, program):
    running = launch("-np", "3", "--servers", "1", *program("fail", "7"))
    assert running.wait() == 7
    assert "bpslaunch: worker 1 failed first, with exit code 7\n" in running.err
    assert "bpslaunch: the last lines of worker 1:\nbpslaunch:   going to fail\n" in running.err


def test_a_worker_that_fails_is_not_reported_as_its_server(launch, program):
    running = launch("-np", "2", *program("fail", "7"))
    assert running.wait() == 7
    assert "bpslaunch: worker 1 failed first, with exit code 7\n" in running.err
    assert "bpslaunch: the job has failed" not in running.err


def test_a_worker_that_has_ended_well_before_is_named(launch, program):
    """It is the cause, though not the one with an exit code: its program has called `exit()`."""
    running = launch("-np", "2", "--servers", "1", *program("leave_early"))
    assert running.wait() == 1
    report = running.err[running.err.index("bpslaunch: worker 1 failed first") :].splitlines()
    assert report[1] == (
        "bpslaunch: worker 0 had ended before, with exit code 0: perhaps the others have waited "
        "for it"
    )


def test_a_server_that_ends_because_of_a_worker_is_not_blamed(launch, program):
    """Worker 1 takes its time to end after its connections are closed; worker 0 does not mind."""
    running = launch("-np", "2", "--servers", "1", *program("fail_slowly"))
    assert running.wait() == 5
    assert "worker 1 failed first, with exit code 5" in running.err


def _kill_a_server(running):
    running.wait_for("exchanging", 2)
    servers = [p for p in running.processes() if p.cmdline()[1:3] == ["-m", "tf_byteps.server"]]
    servers[0].kill()


def test_the_job_goes_on_with_the_servers_that_are_left(launch, program):
    running = launch("-np", "2", "--servers", "2", *program("exchange_for", "1"))
    _kill_a_server(running)
    assert running.wait() == 0, running.err
    assert "failed with exit code 137; the job goes on with the other servers" in running.err
    assert running.err.count("training goes on with the other servers") == 1


def test_a_server_that_fails_is_started_again(launch, program):
    settings = ("-np", "2", "--servers", "2", "--server-restarts", "1")
    running = launch(*settings, *program("exchange_for", "4"))
    _kill_a_server(running)
    assert running.wait() == 0, running.err
    assert "goes on with the other servers, and it is started again" in running.err
    assert running.err.count("has been started again and gets a share of the parts") == 1


def test_without_failover_a_server_that_fails_ends_the_job(launch, program):
    arguments = ("-np", "2", "--servers", "2", *program("exchange_for", "60"))
    running = launch(*arguments, BYTEPS_SERVER_FAILOVER="0")
    _kill_a_server(running)
    assert running.wait() == 137
    assert "failed first, with exit code 137 (SIGKILL)" in running.err


def test_a_server_that_cannot_start_is_blamed(launch, program):
    running = launch("-np", "1", "--servers", "1", "sleep", "60", DMLC_INTERFACE="nope0")
    assert running.wait() == 1
    assert "server 0 failed first, with exit code 1" in running.err
    assert "DMLC_INTERFACE is 'nope0'" in running.err


def test_a_signal_that_ends_a_worker_is_128_more(launch):
    running = launch("-np", "2", "sh", "-c", "[ $BYTEPS_GLOBAL_RANK = 0 ] && sleep 60; kill -9 $$")
    assert running.wait() == 128 + signal.SIGKILL
    assert "worker 1 failed first, with exit code 137 (SIGKILL)" in running.err


def test_what_a_worker_leaves_running_is_ended(launch):
    running = launch("-np", "1", "sh", "-c", "setsid sleep 600 & echo started")
    assert running.wait() == 0  # no_process_left looks for the rest


@pytest.mark.parametrize("number", some_extended([signal.SIGINT, signal.SIGTERM], [signal.SIGTERM]))
def test_signals_end_everything(launch, program, number):
    running = launch("-np", "2", "--servers", "1", *program("sleep_with_children"))
    processes = sleeping_processes(running)
    running.send(number)
    assert running.wait() == 128 + number
    assert all_gone(processes)
    assert f"{number.name}: ending all processes" in running.err


def test_an_ordered_end_is_no_failure_of_servers(launch, program):
    """Server and scheduler lose workers that were asked to end: that is no news."""
    running = launch("-np", "2", "--servers", "1", *program("join_and_sleep"))
    running.wait_for("sleeping", 2)
    running.send(signal.SIGTERM)
    assert running.wait() == 128 + signal.SIGTERM
    assert "[scheduler]" not in running.err and "[server" not in running.err


def test_a_second_ctrl_c_kills(launch, program):
    running = launch("-np", "2", "--grace", "600", *program("stubborn"))
    running.wait_for("sleeping", 2)
    processes = running.processes()
    running.send()
    running.wait_for_error("a second signal kills them")
    assert running.popen.poll() is None
    running.send()
    assert running.wait() == 130
    assert all_gone(processes)


def test_what_does_not_end_is_killed_after_the_grace(launch, program):
    running = launch("-np", "2", "--grace", "1", *program("stubborn"))
    running.wait_for("sleeping", 2)
    running.send(signal.SIGTERM)
    assert running.wait() == 143
    assert "killing what has not ended in 1 s: worker 0, worker 1" in running.err


def test_ctrl_c_during_rendezvous(launch, program):
    running = launch("-np", "2", *program("wait_in_init"), BYTEPS_LOG_LEVEL="INFO")
    running.wait_for_error("has joined")
    running.send()
    assert running.wait() == 130


def test_nothing_outlives_a_killed_bpslaunch(launch, program):
    running = launch("-np", "2", "--servers", "1", "--grace", "2", *program("sleep_with_children"))
    processes = sleeping_processes(running)
    running.send(signal.SIGKILL)
    wait_until(lambda: all_gone(processes))


def test_a_command_dies_with_its_guard(launch, program):
    running = launch("-np", "1", *program("stubborn"))
    running.wait_for("sleeping")
    [guard] = psutil.Process(running.popen.pid).children()
    [command] = guard.children()
    guard.kill()
    wait_until(lambda: all_gone([command]))
    assert running.wait() == 137


def test_ctrl_c_while_it_is_loaded(tmp_path):
    """The first module that it loads takes its time."""
    (tmp_path / "argparse.py").write_text(
        "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(10)"
    )
    done = subprocess.run(
        [sys.executable, "-m", "tf_byteps.launch", "-np", "1", "true"],
        capture_output=True,
        text=True,
        env=clean_environment(PYTHONPATH=f"{tmp_path}:{ROOT}"),
    )
    assert done.returncode == 130 and done.stderr == ""


def test_signals_are_served_while_processes_are_started(launch):
    running = launch("-np", "100000", "--verbose", "--", "sleep", "60")
    running.wait_for_error("[worker 3]")
    running.send(signal.SIGINT)
    running.wait_for_error("SIGINT: ending all processes")
    running.send(signal.SIGINT)  # does not wait for the processes to notice
    assert running.wait() == 130
    assert "[worker 50000]" not in running.err


def test_a_worker_that_ends_before_the_job_begins(launch, program):
    running = launch("-np", "2", "--servers", "1", *program("only_rank_0_joins"))
    assert running.wait() == 1
    assert "worker 1 has ended with exit code 0 before the job began, and others" in running.err
    assert "call tf_byteps.init()" in running.err


def test_sigusr1_reaches_the_workers_and_ends_nobody(launch, program):
    """A worker's shell would be ended by it."""
    train = " ".join(program("train_when_asked"))
    running = launch("-np", "2", "--servers", "1", "sh", "-c", f"{train}; echo shell $?")
    running.wait_for("ready", 2)
    running.send(signal.SIGUSR1)
    assert running.wait() == 0
    assert running.out.count("asked") == 2 and running.out.count("shell 0") == 2


def test_who_was_lost_is_named(launch, program):
    """The last to end is not the cause: worker 1 is stopped, worker 0 fails because of it."""
    running = launch(
        *("-np", "2", "--servers", "1", "--grace", "1", *program("stop_rank_1")),
        BYTEPS_HEARTBEAT_INTERVAL="0.5",
        BYTEPS_HEARTBEAT_TIMEOUT="3",
        BYTEPS_RESTART_TIMEOUT="0",
    )
    assert running.wait() != 0
    assert "bpslaunch: the job has failed: worker 1" in running.err


def test_a_stall_ends_the_job(launch):
    program = ("-m", "tests.cluster", "tests.engine.programs", "one_does_not_send", "[600]")
    variables = {"BYTEPS_STALL_WARNING_SECONDS": "1", "TESTS_RESULT_FILE": "/dev/null"}
    flags = ("-np", "2", "--servers", "1", "--stall-shutdown-seconds", "2")
    job = launch(*flags, sys.executable, *program, **variables)
    assert job.wait() != 0  # long before rank 1 would end
    assert "sent by rank 0; not by rank 1" in job.err
    assert "--stall-shutdown-seconds) allows no more" in job.err
