"""init, shutdown, and the processes around the workers."""

import json
import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest

from tests.cluster import (
    ROOT,
    clean_environment,
    describe,
    free_port,
    run_processes,
    run_workers,
    wait_until,
)
from tests.engine import programs


@pytest.mark.parametrize("workers, servers", [(1, 0), (2, 0), (2, 1)])
def test_lifecycle(workers, servers):
    env = {"BYTEPS_PARTITION_BYTES": str(programs.PART_BYTES)}
    results = run_workers(programs.lifecycle, workers, servers, env)
    for rank, (place, messages) in enumerate(results):
        assert place == [rank, workers, rank, workers]
        assert len(messages) == 6
        for message in messages[:5]:
            assert "tf_byteps.init()" in message
        assert "runs already with another configuration" in messages[5]
        assert "BYTEPS_PARTITION_BYTES (part_bytes) is 1032, not 1024" in messages[5]


def test_one_worker_opens_no_socket():
    program = (
        "import tf_byteps, psutil, numpy, sys; from tf_byteps import _engine; tf_byteps.init();"
        "_engine.exchange(numpy.ones(3), name='x').wait();"
        "print(psutil.Process().net_connections(), 'tensorflow' in sys.modules)"
    )
    done = run(["-c", program])
    assert done.stdout == "[] False\n", done.stdout + done.stderr


def test_import_needs_neither_tensorflow_nor_numpy():
    program = "import tf_byteps, sys; print({'tensorflow', 'numpy', 'zmq'} & set(sys.modules))"
    assert run(["-c", program]).stdout == "set()\n"


def test_an_unknown_name_is_an_attribute_error():
    done = run(["-c", "import tf_byteps; tf_byteps.push_pul"])
    assert "AttributeError: module 'tf_byteps' has no attribute 'push_pul'" in done.stderr


def test_init_again_in_a_job_without_other_processes():
    """TF_CONFIG: worker 0 hosts the scheduler, each worker a server; all ports are free again."""
    workers = [f"127.0.0.1:{free_port()}", f"localhost:{free_port()}"]
    for out in run_tf_config_job("init_again", [3], worker=workers):
        assert out == [[1, 1], [3, 3], [5, 5]]


@pytest.mark.parametrize("host", ["localhost", "[::1]", socket.gethostname()])
def test_tf_config_with_other_kinds_of_names(host):
    workers = [f"{host}:{free_port()}", f"{host}:{free_port()}"]
    for out in run_tf_config_job("just_init", [], worker=workers):
        assert out[1] == 2


def test_a_job_without_a_secret_says_so_once_and_names_its_ports():
    workers = [f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"]
    processes = start_tf_config_job("just_init", [], worker=workers)
    errors = "".join(process.communicate(timeout=60)[1] for process in processes)
    [line] = [line for line in errors.splitlines() if "this job has no secret" in line]
    assert f"(scheduler {workers[0]}, coordinator 127.0.0.1:" in line
    assert line.count("127.0.0.1:") == 4


def test_a_job_without_a_secret_does_not_leave_its_machine():
    workers = ["192.0.2.1:9000", "192.0.2.2:9000"]
    done = run(
        ["-c", "import tf_byteps; tf_byteps.init()"],
        TF_CONFIG=tf_config("worker", 0, worker=workers),
    )
    assert done.returncode == 1
    assert "is to listen at 192.0.2.1, that is at 0.0.0.0" in done.stderr
    assert "BYTEPS_JOB_SECRET_FILE" in done.stderr and "BYTEPS_ALLOW_OPEN=1" in done.stderr


def test_worker_0_of_tf_config_fails():
    """The process that hosts scheduler and server ends without a goodbye."""
    workers = [f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"]
    processes = start_tf_config_job("end_early_rank_0", [], worker=workers)
    outputs = [process.communicate(timeout=60) for process in processes]
    assert processes[0].returncode == 1 and "worker 0 has a bug" in outputs[0][1]
    assert processes[1].returncode == 0, outputs[1][1]
    code, message = json.loads(outputs[1][0])
    assert code == "UNAVAILABLE" and "silent" not in message


def test_a_process_that_hosts_a_server_stays_until_all_have_left():
    """Leaving has two phases (protocol rule 21)."""
    host, other = run_workers(programs.leaves_early, workers=2, servers=0, args=[2])
    assert 1.5 < host < 4 and other < 1.5


def test_it_stays_no_longer_than_the_shutdown_timeout():
    env = {"BYTEPS_SHUTDOWN_TIMEOUT": "1"}
    outcomes = run_processes(programs.leaves_early, workers=2, servers=0, env=env, args=[4])
    host = outcomes[1]
    assert host.code == 0 and 1 <= host.result < 3, describe(outcomes)
    assert "worker 0 ends although other workers have not left 1 s after it" in host.output


def test_a_process_that_hosts_nothing_leaves_at_once():
    leaver, _ = run_workers(programs.leaves_early, workers=2, servers=1, args=[2])
    assert leaver < 1.5


def test_init_again_alone():
    assert run_workers(programs.init_again, workers=1, servers=0, args=[2]) == [[[0, 0], [1, 1]]]


def test_tf_config_with_ps_tasks():
    """No DMLC variable: chief and worker train, the ps task is `python -m tf_byteps.server`."""
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(3)]
    cluster = {"chief": addresses[:1], "worker": addresses[1:2], "ps": addresses[2:]}
    server = start(["-m", "tf_byteps.server"], TF_CONFIG=tf_config("ps", 0, **cluster))
    trainers = [
        start(
            ["-m", "tests.cluster", "tests.engine.programs", "counters", "[]"],
            TF_CONFIG=tf_config(task_type, 0, **cluster),
            TESTS_RESULT_FILE="/dev/stdout",
        )
        for task_type in ("worker", "chief")
    ]
    for trainer in trainers:
        out, err = trainer.communicate(timeout=60)
        assert trainer.returncode == 0, err
        assert json.loads(out)["exchanges"] == 3
    _, err = server.communicate(timeout=30)
    assert server.returncode == 0, err


@pytest.mark.parametrize("given", ["stats.json", "folder/"])
@pytest.mark.parametrize("servers", [0, 2])
def test_each_server_writes_its_counters(tmp_path, given, servers):
    env = {"BYTEPS_SERVER_STATS_FILE": f"{tmp_path}/{given}"}
    workers = run_workers(programs.counters, workers=2, servers=servers, env=env)
    pattern = "stats.*.json" if given == "stats.json" else "folder/server-*.json"
    files = sorted(tmp_path.glob(pattern))
    assert len(files) == 2
    stats = [json.loads(file.read_text()) for file in files]
    assert [s["rank"] for s in stats] == [0, 1]
    pushed = 2 * 3 * 1000 * 4  # workers, rounds, float32
    assert sum(s["pushed_bytes"] for s in stats) == pushed
    tensors = [tensor for s in stats for tensor in s["tensors"]]
    assert {tensor["name"] for tensor in tensors} == {"weights"}
    assert sum(tensor["pushed_bytes"] for tensor in tensors) == pushed
    assert sum(worker["pushed_bytes"] for worker in workers) == pushed


class TestServerAndScheduler:
    @pytest.fixture
    def scheduler(self):
        readable, writable = os.pipe()
        process = start(
            ["-m", "tf_byteps.scheduler", "--report-fd", str(writable)],
            pass_fds=(writable,),
            DMLC_PS_ROOT_URI="127.0.0.1",
            DMLC_PS_ROOT_PORT="0",
            DMLC_NUM_SERVER="1",
            BYTEPS_LOG_LEVEL="INFO",
        )
        os.close(writable)
        with open(readable) as reports:
            process.port = reports.readline().split()[1]
            yield process
            if process.poll() is None:
                process.kill()
            process.communicate()

    def server(self, scheduler, *flags):
        return start(
            [*flags, "-m", "tf_byteps.server"],
            DMLC_ROLE="server",
            DMLC_PS_ROOT_URI="127.0.0.1",
            DMLC_PS_ROOT_PORT=scheduler.port,
            DMLC_NUM_SERVER="1",
            BYTEPS_LOG_LEVEL="INFO",
        )

    def test_server_is_small_and_loads_neither_tensorflow_nor_numpy(self, scheduler):
        server = self.server(scheduler)
        try:
            assert "the server listens at 127.0.0.1:" in server.stderr.readline()
            for process in map(psutil.Process, (server.pid, scheduler.pid)):
                assert process.memory_info().rss < 60e6
                mapped = " ".join(found.path for found in process.memory_maps())
                assert "libtf_byteps_engine" in mapped, mapped
                assert "tensorflow" not in mapped and "numpy" not in mapped, mapped
        finally:
            server.terminate()
            server.communicate(timeout=60)

    def test_neither_imports_tensorflow_or_numpy(self):
        for module in ("server", "scheduler"):
            program = f"import tf_byteps.{module}, sys; print(sorted(sys.modules))"
            modules = run(["-c", program]).stdout
            assert f"'tf_byteps.{module}'" in modules
            assert "'tensorflow'" not in modules and "'numpy'" not in modules

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_signals_end_both_cleanly(self, scheduler, number):
        server = self.server(scheduler)
        assert "listens" in server.stderr.readline()
        wait_for_line(scheduler, "has joined")
        server.send_signal(number)
        _, err = server.communicate(timeout=60)
        assert server.returncode == 0 and "Traceback" not in err, err
        scheduler.send_signal(number)
        _, err = scheduler.communicate(timeout=60)
        assert scheduler.returncode == 0 and "Traceback" not in err, err
        assert "gave up" in err  # it has been told at once

    def test_server_learns_that_the_scheduler_was_ended(self, scheduler):
        server = self.server(scheduler)
        assert "listens" in server.stderr.readline()
        wait_for_line(scheduler, "has joined")
        scheduler.terminate()
        _, err = server.communicate(timeout=60)
        assert server.returncode == 1
        assert "the job did not start: ended by SIGTERM" in err


def test_scheduler_without_an_address():
    done = run(["-m", "tf_byteps.scheduler"])
    assert done.returncode == 1
    assert "DMLC_PS_ROOT_URI (scheduler_host) is not set, but DMLC_ROLE (role)" in done.stderr


def start_tf_config_job(function, args, **cluster):
    return [
        start(
            ["-m", "tests.cluster", "tests.engine.programs", function, json.dumps(args)],
            TF_CONFIG=tf_config("worker", index, **cluster),
            TESTS_RESULT_FILE="/dev/stdout",
        )
        for index in range(len(cluster["worker"]))
    ]


def run_tf_config_job(function, args, **cluster):
    """What the function returned on each worker."""
    results = []
    for process in start_tf_config_job(function, args, **cluster):
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        results.append(json.loads(out))
    return results


def tf_config(task_type, index, **cluster):
    return json.dumps({"cluster": cluster, "task": {"type": task_type, "index": index}})


def start(arguments, pass_fds=(), **variables):
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=clean_environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=pass_fds,
    )


def wait_for_line(process, text):
    """Reads what a process logs up to a line with `text`."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        if text in line:
            return
    raise AssertionError(f"it did not log {text!r}: {lines}")


def run(arguments, **variables):
    process = start(arguments, **variables)
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def test_processes_of_the_helper_end(tmp_path):
    """The helper's own promise: what is left at the end of a `with` block is killed."""
    from tests.cluster import Cluster

    with Cluster(programs.waits_for_end, workers=2, servers=1) as cluster:
        pids = [process.popen.pid for process in cluster.processes()]
        cluster.workers[0].wait_for_output("ready")
    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids))
