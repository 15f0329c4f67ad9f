"""The job's secret: where it comes from, who gets in with it, and that nobody sees it."""

import os
import socket
import subprocess
import sys
import time

import pytest
import zmq

from tests.access import programs
from tests.cluster import clean_environment, describe, outcome_of, run_processes, run_workers
from tf_byteps.config import Config
from tf_byteps.errors import ConfigError
from tf_byteps.rendezvous.gate import Gate, peer_address
from tf_byteps.rendezvous.secret import curve_keys, engine_key, job_secret, new_secret

SECRET = "0123456789abcdef0123456789abcdef"


class TestConfiguration:
    def test_from_the_environment(self):
        assert job_secret(Config.from_environment({"BYTEPS_JOB_SECRET": SECRET})) == SECRET
        assert job_secret(Config.from_environment({})) is None

    def test_from_a_file(self, tmp_path):
        path = tmp_path / "secret"
        path.write_text(SECRET + "\n")
        path.chmod(0o600)
        assert job_secret(Config(job_secret_file=str(path))) == SECRET

    def test_a_file_for_everybody_is_mentioned(self, tmp_path, caplog):
        path = tmp_path / "secret"
        path.write_text(SECRET)
        path.chmod(0o644)
        assert job_secret(Config(job_secret_file=str(path))) == SECRET
        assert "chmod 600" in caplog.text and SECRET not in caplog.text

    def test_bad_files(self, tmp_path):
        with pytest.raises(ConfigError, match="cannot read .*No such file"):
            job_secret(Config(job_secret_file=str(tmp_path / "missing")))
        path = tmp_path / "short"
        path.write_text("secret")
        with pytest.raises(ConfigError, match="holds 6 bytes, but a secret must have at least 16"):
            job_secret(Config(job_secret_file=str(path)))

    def test_one_source_only(self):
        with pytest.raises(ConfigError, match="unset one"):
            Config(job_secret=SECRET, job_secret_file="/secret")

    def test_no_text_shows_it(self):
        env = {"BYTEPS_JOB_SECRET": SECRET}
        config = Config.from_environment(env)
        texts = [repr(config), str(config), config.named("job_secret")]
        with pytest.raises(ConfigError) as short:
            Config.from_environment({"BYTEPS_JOB_SECRET": "too short"})
        with pytest.raises(ConfigError) as both:
            Config(job_secret=SECRET, job_secret_file="/secret")
        texts += [str(both.value)]
        printed = subprocess.run(
            [sys.executable, "-m", "tf_byteps.config"],
            env=clean_environment(**env),
            capture_output=True,
            text=True,
            check=True,
        )
        texts += [printed.stdout, printed.stderr]
        assert "(hidden)" in printed.stdout
        assert "(hidden)" in str(short.value) and "too short" not in str(short.value)
        for text in texts:
            assert SECRET not in text

    def test_every_use_has_a_key_of_its_own(self):
        keys = [engine_key(SECRET).encode()]
        for side in ("scheduler", "participant"):
            public, private = curve_keys(SECRET, side)
            assert zmq.curve_public(private) == public
            keys += [public, private]
        assert len(set(keys)) == 5
        assert engine_key(SECRET) != engine_key(SECRET + "x") and engine_key(None) == ""
        assert new_secret() != new_secret() and len(new_secret()) == 64


@pytest.mark.parametrize("servers", [0, 1])
@pytest.mark.parametrize("secret", ["", SECRET], ids=["without", "with"])
def test_jobs_with_and_without_a_secret(secret, servers):
    env = {"BYTEPS_JOB_SECRET": secret}
    assert run_workers(programs.joins, 2, servers, env) == [3.0, 3.0]


@pytest.mark.parametrize("wrong", ["", SECRET[::-1]], ids=["missing", "wrong"])
def test_a_process_without_the_secret_is_kept_out_and_logged(wrong):
    """The other worker waits for it in vain, as for one that is not there."""

    def env(label):
        secret = wrong if label == "worker 1" else SECRET
        timeouts = {"BYTEPS_CONNECT_TIMEOUT": "3", "BYTEPS_RENDEZVOUS_TIMEOUT": "6"}
        return {"BYTEPS_JOB_SECRET": secret, **timeouts}

    outcomes = run_processes(programs.joins, 2, 1, env)
    stranger, worker = outcome_of(outcomes, "worker 1"), outcome_of(outcomes, "worker 0")
    assert "cannot reach the scheduler" in stranger.result, describe(outcomes)
    assert "BYTEPS_JOB_SECRET" in stranger.result
    assert "missing: worker 1" in worker.result
    scheduler = outcome_of(outcomes, "scheduler").output
    # Its address, too, unless the connection has ended before anybody could ask for it.
    assert "the scheduler refused a connection from " in scheduler, describe(outcomes)
    for outcome in outcomes:
        assert SECRET not in outcome.output + str(outcome.result)


def test_a_refusal_names_the_address(caplog):
    """Of a stranger that knows the scheduler's public key, but is not a participant."""
    context = zmq.Context()
    guarded = context.socket(zmq.ROUTER)
    gate = Gate(context, guarded, SECRET)
    port = guarded.bind_to_random_port("tcp://127.0.0.1")
    try:
        with context.socket(zmq.DEALER) as stranger:
            stranger.setsockopt(zmq.LINGER, 0)
            stranger.curve_publickey, stranger.curve_secretkey = zmq.curve_keypair()
            stranger.curve_serverkey = curve_keys(SECRET, "scheduler")[0]
            stranger.connect(f"tcp://127.0.0.1:{port}")
            deadline = time.monotonic() + 20
            while "refused" not in caplog.text and time.monotonic() < deadline:
                assert not gate.poll(milliseconds=100)
    finally:
        gate.close()
        context.destroy(linger=0)
    assert "the scheduler refused a connection from 127.0.0.1" in caplog.text


def test_where_a_connection_comes_from():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        with socket.create_connection(listening.getsockname()) as stranger:
            accepted, _ = listening.accept()
            host, port = stranger.getsockname()
            assert peer_address(accepted.fileno()) == f"{host}:{port}"
            descriptor = accepted.detach()
            os.close(descriptor)
            assert "not known any more" in peer_address(descriptor)


def test_a_scheduler_without_the_secret_gets_nobody():
    def env(label):
        secret = "" if label == "scheduler" else SECRET
        timeouts = {"BYTEPS_CONNECT_TIMEOUT": "3", "BYTEPS_RENDEZVOUS_TIMEOUT": "5"}
        return {"BYTEPS_JOB_SECRET": secret, **timeouts}

    outcomes = run_processes(programs.joins, 2, 1, env)
    for label in ("worker 0", "worker 1"):
        assert "cannot reach the scheduler" in outcome_of(outcomes, label).result
    assert outcome_of(outcomes, "scheduler").code == 1


def test_only_one_interface_is_listened_at():
    """By the server too, though the name under which it is known does not say an address."""
    name = os.uname().nodename
    env = {"DMLC_NODE_HOST": name, "DMLC_INTERFACE": "lo"}
    listening = run_workers(listening_addresses, 2, 0, env={**env, "DMLC_PS_ROOT_URI": "127.0.0.1"})
    assert listening == [["127.0.0.1"]] * 2


def listening_addresses():
    import psutil

    import tf_byteps

    tf_byteps.init()
    sockets = psutil.Process().net_connections("tcp")
    found = sorted({s.laddr.ip for s in sockets if s.status == psutil.CONN_LISTEN})
    programs.joins()
    return found
