"""bpslaunch with remote hosts: 127.0.0.2 and 127.0.0.3, through a real sshd."""

import contextlib
import shlex
import signal

import psutil
import pytest

from tests.cluster import all_gone, wait_until
from tests.selection import some_extended
from tf_byteps.launch.hosts import is_local, parse_hosts, passed_environment
from tf_byteps.launch.remote_shells import Ssh

HOSTS = "127.0.0.2:1,127.0.0.3:1"
_CHOSEN = "a secret that the user has chosen"


@pytest.mark.parametrize("servers", ["0", "2"])
def test_a_job_on_two_hosts_trains(launch, program, sshd, servers):
    running = launch("-H", HOSTS, "--servers", servers, *sshd.options, *program("train"))
    assert running.wait() == 0, running.err
    for rank in range(2):
        assert f"[worker {rank}] trained {rank} 2 {rank} 2 1.0\n" in running.out


def test_servers_on_hosts_of_their_own(launch, program, sshd):
    place = ["-H", "localhost:2", "--server-hosts", "127.0.0.2,127.0.0.3", "--verbose"]
    running = launch(*place, *sshd.options, *program("train"))
    assert running.wait() == 0, running.err
    for number, host in enumerate(["127.0.0.2", "127.0.0.3"]):
        assert f"[server {number}] on {host} by ssh: " in running.err
    assert running.out.count("trained") == 2


def test_a_network_interface_is_chosen(launch, program, sshd):
    """127.0.0.1 is what lo has; the route to 127.0.0.2 has that address at this end."""
    place = ["-H", HOSTS, "--servers", "1", "--network-interface", "lo"]
    show = ["sh", "-c", 'echo "$DMLC_INTERFACE $DMLC_PS_ROOT_URI"; exec "$@"', "sh"]
    running = launch(*place, *sshd.options, *show, *program("train"))
    assert running.wait() == 0, running.err
    assert running.out.count("] lo 127.0.0.1\n") == 2 and running.out.count("trained") == 2


def test_a_network_interface_that_is_not_there_is_named(launch, sshd):
    running = launch("-H", HOSTS, "--network-interface", "nope0", *sshd.options, "true")
    assert running.wait() == 2
    assert "DMLC_INTERFACE is 'nope0'" in running.err and "this machine has" in running.err


def test_command_and_variables_arrive_as_they_are(launch, sshd):
    awkward = "a 'b' \"c\" $HOME `id` \\ * ; ü"
    script = 'echo "$BYTEPS_JOB_ID|$GIVEN|$1|$PWD|$NOT_PASSED"'
    arguments = ["-H", "127.0.0.2:1", "--servers", "1", "--env", f"GIVEN={awkward}"]
    command = ["sh", "-c", script, "sh", awkward]
    running = launch(*arguments, *sshd.options, *command, NOT_PASSED="secret")
    assert running.wait() == 0, running.err
    job_id, given, argument, folder, not_passed = running.out.strip().split("|")
    assert job_id.startswith("[worker 0] ") and len(job_id.split()[-1]) == 16
    assert (given, argument, not_passed) == (awkward, awkward, "")
    assert folder


@pytest.mark.parametrize("given", some_extended([None, _CHOSEN], [_CHOSEN]))
def test_the_secret_arrives_and_no_command_line_shows_it(launch, sshd, given):
    script = 'echo "secret: $BYTEPS_JOB_SECRET"; sleep 2'
    arguments = ["-H", HOSTS, "--servers", "1", "--verbose", *sshd.options, "sh", "-c", script]
    variables = {"BYTEPS_JOB_SECRET": given} if given else {}
    running = launch(*arguments, **variables)
    running.wait_for("secret: ", 2)
    lines = command_lines([*running.processes(), *remote_processes(sshd)])
    assert running.wait() == 0, running.err
    found = {line.partition("secret: ")[2] for line in running.out.splitlines()}
    assert len(found) == 1
    secret = found.pop()
    assert secret == given if given else len(secret) == 64
    assert lines and not any(secret in text for text in [*lines, running.err])


def test_no_command_line_shows_variables(launch, sshd):
    script = 'echo "given: $AWS_SECRET_ACCESS_KEY $TF_TOKEN $MINE"; sleep 2'
    names = ["--env", "AWS_SECRET_ACCESS_KEY", "--env", "MINE=mine-and-big" + "g" * 70_000]
    arguments = ["-H", HOSTS, *names, *sshd.options, "sh", "-c", script]
    secrets = {"AWS_SECRET_ACCESS_KEY": "top-secret", "TF_TOKEN": "secret-token"}
    running = launch(*arguments, **secrets)
    running.wait_for("given: top-secret secret-token mine-and-big", 2)
    clients = [process for process in running.processes() if process.name() == "ssh"]
    lines = command_lines([*clients, *remote_processes(sshd)])
    assert running.wait() == 0, running.err
    assert len(clients) == 2 and len(lines) > 4
    for text in [*secrets.values(), "mine-and-big"]:
        assert not any(text in line for line in lines)


def command_lines(processes):
    """Of those that still run."""
    lines = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            lines.append(" ".join(process.cmdline()))
    return lines


def test_streams_stay_apart(launch, sshd):
    running = launch("-H", "127.0.0.2", *sshd.options, "sh", "-c", "echo one; echo two >&2")
    assert running.wait() == 0
    assert running.out == "[worker 0] one\n"
    assert "[worker 0] two\n" in running.err


def test_exit_code_of_a_remote_worker(launch, program, sshd):
    running = launch("-H", HOSTS, "--servers", "1", *sshd.options, *program("fail", "9"))
    assert running.wait() == 9
    assert "worker 1 failed first, with exit code 9" in running.err


def test_an_unreachable_host_is_named(launch, sshd):
    running = launch("-H", "127.0.0.2,127.0.0.9", *sshd.options, "sleep", "60")
    assert running.wait() == 255
    assert "worker 1 failed first, with exit code 255" in running.err
    assert "ssh to 127.0.0.9 also exits with 255 if ssh itself fails" in running.err


def remote_processes(sshd):
    """What runs below the sshd of the tests."""
    return psutil.Process(sshd.popen.pid).children(recursive=True)


@pytest.mark.parametrize(
    "number", some_extended([signal.SIGINT, signal.SIGTERM, signal.SIGKILL], [signal.SIGINT])
)
def test_remote_processes_end_with_bpslaunch(launch, program, sshd, number):
    arguments = ["-H", HOSTS, "--grace", "2", *sshd.options]
    running = launch(*arguments, *program("sleep_with_children"))
    running.wait_for("sleeping", 2)
    wait_until(lambda: sum(p.name() == "sleep" for p in remote_processes(sshd)) >= 4)
    processes = remote_processes(sshd)
    running.send(number)
    expected = -number if number == signal.SIGKILL else 128 + number
    assert running.wait() == expected
    wait_until(lambda: all_gone(processes))


def test_remote_processes_end_when_the_connection_breaks(launch, program, sshd):
    running = launch("-H", "127.0.0.2:2", "--grace", "2", *sshd.options, *program("stubborn"))
    running.wait_for("sleeping", 2)
    processes = remote_processes(sshd)
    clients = [p for p in running.processes() if p.name() == "ssh"]
    assert len(clients) == 2
    clients[0].kill()
    assert running.wait(30) == 137
    wait_until(lambda: all_gone(processes))


class TestWithoutConnection:
    def test_ssh_command_quotes_everything(self):
        ssh = Ssh(port=2222, identity="/k e y", options=("User=x",))
        line = ssh.command("host", ["prog", "a b", "$c"], {"NAME": "it's"})
        assert line[line.index("-p") + 1] == "2222"
        assert line[line.index("-i") + 1] == "/k e y"
        assert "User=x" in line and line[-2] == "host"
        shell, flag, script = shlex.split(line[-1])[1:]
        assert (shell, flag) == ("sh", "-c")
        words = shlex.split(script)
        assert words[-5:] == ["env", "NAME=it's", "prog", "a b", "$c"]

    def test_hosts(self):
        hosts = parse_hosts("a:4, b,c:1")
        assert [(host.name, host.slots) for host in hosts] == [("a", 4), ("b", 1), ("c", 1)]
        assert is_local("localhost") and is_local("127.0.0.1") and not is_local("127.0.0.2")

    def test_only_what_a_job_needs_is_passed_on(self):
        names = ["BYTEPS_X", "DMLC_Y", "TF_Z", "XLA_FLAGS", "PATH", "AWS_SECRET", "MINE", "HOME"]
        secrets = ["BYTEPS_JOB_SECRET", "BYTEPS_JOB_SECRET_FILE"]
        passed = passed_environment(dict.fromkeys(names + secrets, "1"), ["MINE", secrets[0]])
        assert set(names) - set(passed) == {"AWS_SECRET", "HOME"}
        assert not set(secrets) & set(passed)
