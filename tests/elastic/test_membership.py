"""Workers die, come and go, in jobs that bpslaunch starts; without TensorFlow."""

import signal

import pytest


def test_the_rest_goes_on_and_a_new_worker_is_let_in(elastic):
    job = elastic("--min-np", "2", "--max-np", "3")
    job.running.wait_for("of 3 from 0", 3)
    job.kill(0)
    job.running.wait_for("of 2 from", 2)
    job.running.wait_for("member 3: rank 2 of 3 from")
    code, output = job.finish()
    assert code == 0, output
    # Who is left keeps its order; steps are counted on from a commit.
    assert "member 1: rank 0 of 2 from" in output and "member 2: rank 1 of 2 from" in output
    assert "member 1: rank 0 of 3 from" in output and "of 3 from 0" in output
    assert output.count("finished with 3") == 3
    assert "worker 0 on localhost failed with exit code 137" in output


def test_error_feedback_begins_at_zero_in_each_epoch(elastic):
    """Sums are those of an oracle that has no residual when workers have changed."""
    # Three contributions round by their order.
    variables = {"BYTEPS_MIN_COMPRESS_BYTES": "0", "BYTEPS_DETERMINISTIC": "1"}
    job = elastic("--min-np", "2", "--max-np", "3", program="count onebit", **variables)
    job.running.wait_for("of 3 from 0", 3)
    job.kill(0)
    job.running.wait_for("member 3: rank 2 of 3 from")
    code, output = job.finish()
    assert code == 0, output
    assert output.count("finished with 3") == 3
    lines = output.splitlines()
    for worker in ("[worker 1]", "[worker 2]"):
        own = [line for line in lines if worker in line]
        changes = sum("of 2 from" in line or "of 3 from" in line for line in own) - 1
        said = sum("error feedback of compressed gradients begins at zero" in line for line in own)
        assert 1 <= said <= changes, output  # an epoch may end before it has compressed anything


@pytest.mark.slow
def test_a_stopped_worker_is_given_up(elastic):
    job = elastic("--min-np", "1", "--max-np", "2")
    job.running.wait_for("of 2 from 0", 2)
    job.kill(1, signal.SIGSTOP)
    job.running.wait_for("rank 0 of 1 from")
    job.kill(1, signal.SIGCONT)  # it learns that it was lost, and comes back
    job.running.wait_for("member 1: rank 1 of 2 from", 2)
    code, output = job.finish()
    assert code == 0, output
    assert output.count("finished with 2") == 2


@pytest.mark.slow
def test_a_stopped_worker_does_not_hold_up_the_end(elastic):
    job = elastic("--min-np", "1", "--max-np", "2", "--grace", "1")
    job.running.wait_for("of 2 from 0", 2)
    job.kill(1, signal.SIGSTOP)
    job.running.wait_for("rank 0 of 1 from")
    code, output = job.finish()
    assert code == 0, output
    assert output.count("finished with 1") == 1
    assert "killing what has not ended in 1 s: worker 1" in output


@pytest.mark.slow
def test_server_processes_come_along(elastic):
    job = elastic("--min-np", "1", "--max-np", "2", "--servers", "2")
    job.running.wait_for("of 2 from 0", 2)
    job.kill(0)
    job.running.wait_for("of 1 from")
    job.running.wait_for("member 2: rank 1 of 2 from")
    code, output = job.finish()
    assert code == 0, output
    assert output.count("finished with 2") == 2


@pytest.mark.slow
def test_a_worker_that_dies_before_it_has_connected(elastic):
    """The engine would wait for it as long as it may take to connect.

    It hosts no server: that would have connected already.
    """
    arguments = ("--min-np", "1", "--max-np", "2", "--servers", "1")
    job = elastic(*arguments, program="vanish", BYTEPS_CONNECT_TIMEOUT="120")
    job.running.wait_for("of 2 from 0", 2)
    code, output = job.finish()
    assert code == 0, output
    assert "worker 1 was lost when the job had just begun" in output


@pytest.mark.slow
def test_a_worker_that_dies_while_all_get_the_address_book(elastic):
    """Servers have begun the epoch, and would wait for workers as long as those may take."""
    arguments = ("--min-np", "1", "--max-np", "2", "--servers", "1")
    job = elastic(*arguments, program="vanish_early", BYTEPS_CONNECT_TIMEOUT="120")
    job.running.wait_for("member 2: rank 1 of 2 from")
    code, output = job.finish()
    assert code == 0, output
    assert "has gone while the job began" in output


@pytest.mark.slow
def test_too_few_workers(elastic):
    arguments = ("--min-np", "2", "--elastic-timeout", "3", "--host-failures", "1")
    job = elastic(*arguments)
    job.running.wait_for("of 2 from 0", 2)
    job.kill(1)
    code, output = job.end()
    assert code == 1, output
    assert "1 of at least 2 workers" in output and "after 3" in output
    assert "--min-np" in output and "--elastic-timeout" in output
    assert "localhost is not used any more: 1 of its processes have failed" in output


@pytest.mark.slow
def test_a_host_that_fails_again_and_again(elastic):
    job = elastic("--min-np", "1", "--host-failures", "2", program="fail")
    code, output = job.end()
    assert code == 3, output
    assert output.count("failing") >= 2
    assert "localhost is not used any more: 2 of its processes have failed" in output


@pytest.mark.slow
def test_a_host_that_cannot_work_does_not_end_the_job(elastic, sshd):
    hosts = ("-H", "127.0.0.2:1,127.0.0.3:1", "--host-failures", "2", *sshd.options)
    job = elastic("--min-np", "1", *hosts, program="fail_on 127.0.0.3")
    job.running.wait_for("member 0: rank 0 of 1 from 0")
    job.running.wait_for_error("127.0.0.3 is not used any more: 2 of its processes have failed")
    code, output = job.finish()
    assert code == 0, output
    assert "finished with 1" in output


@pytest.mark.slow
def test_reset_limit(elastic):
    job = elastic("--min-np", "1", "--max-np", "2", "--reset-limit", "0")
    job.running.wait_for("of 2 from 0", 2)
    job.kill(1)
    code, output = job.end()
    assert code == 1, output
    assert "have changed more than 0 times (--reset-limit" in output


@pytest.fixture
def hosts(tmp_path):
    """A discovery script, and a function that changes what it prints."""
    listed = tmp_path / "hosts.txt"
    script = tmp_path / "hosts.sh"
    script.write_text(f"#!/bin/sh\ncat {listed}\n")
    script.chmod(0o700)

    def change(text):
        new = tmp_path / "new.txt"
        new.write_text(text)
        new.rename(listed)

    change.script = str(script)
    return change


def test_discovery_script(elastic, hosts):
    hosts("localhost:2\n")
    job = elastic("--min-np", "1", "--host-discovery-script", hosts.script)
    job.running.wait_for("of 2 from 0", 2)
    hosts("localhost:2\n127.0.0.1:1\n")
    job.running.wait_for("member 2: rank 2 of 3 from")
    hosts("127.0.0.1:1\n")  # two workers leave at a commit; nothing is lost
    job.running.wait_for("member 2: rank 0 of 1 from")
    hosts("127.0.0.1\nlocalhost:1\n")
    job.running.wait_for("member 3: rank 1 of 2 from")
    code, output = job.finish()
    assert code == 0, output
    assert "lost:" not in output and "failed" not in output
    assert output.count("finished with 2") == 2


@pytest.mark.slow
def test_hosts_that_cannot_reach_the_scheduler(elastic, hosts):
    hosts("localhost:1\n")
    job = elastic("--host-discovery-script", hosts.script)
    job.running.wait_for("of 1 from 0")
    hosts("localhost:1\n192.0.2.1:1\n")
    job.running.wait_for_error("192.0.2.1 is not used: it cannot reach")
    code, output = job.finish()
    assert code == 0, output


def test_a_script_that_fails(elastic, hosts):
    job = elastic("--host-discovery-script", hosts.script)
    code, output = job.end()
    assert code == 1 and "ended with exit code 1" in output, output
