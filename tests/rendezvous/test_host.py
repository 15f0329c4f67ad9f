import os
import socket
import subprocess
import sys

import pytest

from tests.cluster import clean_environment
from tf_byteps.config import Config
from tf_byteps.errors import ConfigError
from tf_byteps.rendezvous import host


def test_processes_of_one_machine_have_one_host_id():
    """One meaning of "same host" (protocol rule 17)."""
    command = "from tf_byteps import config; from tf_byteps.rendezvous import host\n"
    command += "print(host.host_id(config.Config()))"
    done = subprocess.run(
        [sys.executable, "-c", command], env=clean_environment(), capture_output=True, text=True
    )
    assert done.stdout.strip() == host.host_id(Config())


def test_another_network_namespace_is_another_host():
    """In spite of the same boot id (protocol rule 17)."""
    command = [
        "unshare",
        "--net",
        sys.executable,
        "-c",
        "from tf_byteps import config; from tf_byteps.rendezvous import host\n"
        "print(host.host_id(config.Config()))",
    ]
    if os.geteuid() != 0:
        command[1:1] = ["--user", "--map-root-user"]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"network namespaces cannot be made here: {done.stderr.strip()}")
    assert done.stdout.strip() != host.host_id(Config())


def test_a_configured_host_id_wins():
    assert host.host_id(Config(host_id="rack 7")) == "rack 7"


class TestOwnAddress:
    def test_configured(self):
        assert host.own_address(Config(node_host="10.1.2.3", interface="lo")) == "10.1.2.3"

    def test_of_an_interface(self):
        assert host.own_address(Config(interface="lo")) == "127.0.0.1"

    def test_of_an_unknown_interface(self):
        with pytest.raises(ConfigError, match="DMLC_INTERFACE is 'nope0'.* this machine has .*lo"):
            host.own_address(Config(interface="nope0"))

    def test_towards_the_scheduler(self):
        config = Config(scheduler_host="127.0.0.1", scheduler_port=1)
        assert host.own_address(config) == "127.0.0.1"

    def test_of_a_job_in_one_process(self):
        assert host.own_address(Config()) == "127.0.0.1"


class TestBindableAddress:
    @pytest.mark.parametrize("name", ["127.0.0.2", "::1"])
    def test_own(self, name):
        assert host.bindable_address(name) == name

    def test_localhost(self):
        assert host.bindable_address("localhost") == "127.0.0.1"

    def test_own_name_that_stands_for_loopback_on_this_machine_only(self, monkeypatch):
        monkeypatch.setattr(host, "numeric_addresses", lambda name: ["127.0.1.1"])
        assert host.bindable_address("node7") == "0.0.0.0"

    @pytest.mark.parametrize("name", ["192.0.2.1", "no-such-host.invalid"])
    def test_that_of_a_load_balancer(self, name):
        assert host.bindable_address(name) == "0.0.0.0"


class TestListeningWithoutASecret:
    """The address 192.0.2.1 is nobody's, so that a name for it means all interfaces."""

    @staticmethod
    def config(**settings):
        job = {"num_worker_machines": 2, "scheduler_host": "h", "scheduler_port": 1}
        return Config(**{**job, **settings})

    def test_beyond_this_machine_is_refused(self):
        with pytest.raises(ConfigError) as caught:
            host.listening_address(self.config(), "192.0.2.1")
        for part in ("this worker", "192.0.2.1, that is at 0.0.0.0", "BYTEPS_JOB_SECRET_FILE"):
            assert part in str(caught.value)
        assert "BYTEPS_ALLOW_OPEN=1" in str(caught.value)

    @pytest.mark.parametrize(
        "settings", [{"allow_open": True}, {"job_secret": "s" * 16}, {"job_secret_file": "/s"}]
    )
    def test_unless_it_is_allowed_or_there_is_a_secret(self, settings):
        assert host.listening_address(self.config(**settings), "192.0.2.1") == "0.0.0.0"

    @pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "::1"])
    def test_here_is_allowed(self, name):
        assert host.listening_address(self.config(), name) in ("127.0.0.1", "::1")

    def test_own_name_that_stands_for_loopback(self, monkeypatch):
        monkeypatch.setattr(host, "numeric_addresses", lambda name: ["127.0.1.1"])
        with pytest.raises(ConfigError, match="listen at node7, that is at 0.0.0.0"):
            host.listening_address(self.config(), "node7")
        together = self.config(global_rank=1, global_size=2, local_rank=1, local_size=2)
        assert host.listening_address(together, "node7") == "127.0.1.1"


def test_route_to_a_name_that_nobody_knows_is_the_name():
    assert host.route_address("no-such-host.invalid") == "no-such-host.invalid"
    assert socket.inet_aton(host.route_address("127.0.0.1"))
