import os
import re
import signal
import subprocess
import sys

import psutil
import pytest

from tests.cluster import ROOT, clean_environment, wait_until
from tests.debian import find_program


class Launch:
    """A running bpslaunch, with its output in files; `inside`: the words before its command."""

    def __init__(self, folder, arguments, variables, inside=()):
        self._files = [folder / "out.txt", folder / "err.txt"]
        with open(self._files[0], "wb") as out, open(self._files[1], "wb") as err:
            self.popen = subprocess.Popen(
                [*inside, sys.executable, "-m", "tf_byteps.launch", *arguments],
                cwd=ROOT,
                env=clean_environment(**variables),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def out(self):
        return self._files[0].read_text(errors="replace")

    @property
    def err(self):
        return self._files[1].read_text(errors="replace")

    def wait(self, timeout=60):
        """The exit code."""
        return self.popen.wait(timeout)

    def send(self, number=signal.SIGINT):
        self.popen.send_signal(number)

    def wait_for(self, text, count=1, timeout=30):
        """Waits until all processes together have printed `text` so often."""
        wait_until(lambda: self.out.count(text) >= count or self.popen.poll() is not None, timeout)
        assert self.out.count(text) >= count, self.out + self.err

    def wait_for_error(self, text):
        """The same for what bpslaunch itself says."""
        wait_until(lambda: text in self.err or self.popen.poll() is not None)
        assert text in self.err, self.out + self.err

    def processes(self):
        """All that have come of it."""
        return psutil.Process(self.popen.pid).children(recursive=True)


@pytest.fixture
def launch(tmp_path):
    """Starts bpslaunch: `launch("-np", "2", ..., NAME="value")`."""
    started = []

    def start(*arguments, **variables):
        folder = tmp_path / f"launch-{len(started)}"
        folder.mkdir()
        started.append(Launch(folder, arguments, variables))
        return started[-1]

    yield start
    for running in started:
        if running.popen.poll() is None:
            running.popen.kill()  # its guards notice
        running.popen.wait()


@pytest.fixture
def program():
    """The command that runs a function of programs.py."""

    def command(*arguments):
        return [sys.executable, "-m", "tests.launch.programs", *arguments]

    return command


@pytest.fixture(scope="session")
def sshd(tmp_path_factory):
    """A real sshd on 127.0.0.0/8 with a host key and configuration of its own."""
    running = start_sshd(tmp_path_factory.mktemp("sshd"), ["127.0.0.2", "127.0.0.3"])
    yield running
    running.popen.terminate()
    running.popen.wait()


class Sshd:
    """Where it listens, and the options of bpslaunch that reach it."""

    def __init__(self, popen, port, folder):
        self.popen, self.port = popen, port
        self.options = ["--ssh-port", str(port), "--ssh-identity", str(folder / "user_key")]
        for option in (f"UserKnownHostsFile={folder}/known_hosts", "StrictHostKeyChecking=no"):
            self.options += ["--ssh-option", option]
        self.options += ["--ssh-option", "IdentitiesOnly=yes", "--ssh-option", "LogLevel=ERROR"]
        self.options += ["--ssh-option", f"ControlPath={folder}/none"]


def start_sshd(folder, addresses, inside=()):
    """Starts sshd with keys of its own; tries ports until one is free.

    Args:
        folder: for keys and configuration. Those of several servers share the keys in it.
        addresses: where it listens.
        inside: the words before its command.
    """
    packages = ("openssh-server", "openssh-client")
    find_program("ssh", *packages)
    server = find_program("sshd", *packages)
    _make_keys(folder)
    config, log = folder / f"sshd_config_{addresses[0]}", folder / f"log_{addresses[0]}.txt"
    for port in range(22022, 22122):
        lines = [f"ListenAddress {address}:{port}" for address in addresses]
        lines += [
            f"HostKey {folder}/host_key",
            f"AuthorizedKeysFile {folder}/authorized_keys",
            "PidFile none",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "UsePAM no",
            "StrictModes no",  # the files are in a temporary folder that others may write to
            "MaxStartups 50",
        ]
        config.write_text("\n".join([*lines, ""]))
        with open(log, "wb") as file:
            popen = subprocess.Popen([*inside, server, "-D", "-e", "-f", str(config)], stderr=file)
        wait_until(lambda popen=popen: _is_up(popen, log, len(addresses)))
        if popen.poll() is None:
            return Sshd(popen, port, folder)
        if "Address already in use" not in log.read_text():
            pytest.skip(f"sshd does not start here: {log.read_text()}")
    pytest.skip("sshd found no free port")


def _make_keys(folder):
    if (folder / "authorized_keys").exists():
        return
    for key in ("host_key", "user_key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
        subprocess.run(command, check=True)
    (folder / "user_key.pub").rename(folder / "authorized_keys")
    os.makedirs("/run/sshd", exist_ok=True) if os.geteuid() == 0 else None


def _is_up(popen, log, addresses):
    listening = re.findall("Server listening on", log.read_text())
    return len(listening) == addresses or popen.poll() is not None
