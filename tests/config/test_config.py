import dataclasses
import json
import logging
import pathlib
import subprocess
import sys

import pytest

from tests.cluster import clean_environment
from tf_byteps import _engine, config as config_module, engine_options as of_engine
from tf_byteps.config import OPTIONS, Config, original_variables, variables
from tf_byteps.config.table import HEADINGS, default
from tf_byteps.errors import BytePSError, ConfigError

SCHEDULER = {"DMLC_PS_ROOT_URI": "10.0.0.1", "DMLC_PS_ROOT_PORT": "9000"}


def tf_config(task_type, index, **cluster):
    return {
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": task_type, "index": index}})
    }


def test_nothing_configured_is_one_worker_without_network():
    config = Config.from_environment({})
    assert (config.role, config.rank, config.size, config.distributed) == ("worker", 0, 1, False)
    assert not config.hosts_server and not config.hosts_scheduler
    assert config.sources == {}


def test_arguments_win_over_environment_over_defaults():
    env = {"BYTEPS_PARTITION_BYTES": "1024", "BYTEPS_IO_THREADS": "3"}
    config = Config.from_environment(env, part_bytes=2048)
    assert (config.part_bytes, config.io_threads, config.connect_timeout) == (2048, 3, 60.0)
    assert config.sources == {"part_bytes": "argument", "io_threads": "BYTEPS_IO_THREADS"}


@pytest.mark.parametrize(
    "variable, given, expected",
    [
        ("BYTEPS_PARTITION_BYTES", "4MB", "must be a whole number of bytes, at least 8"),
        ("BYTEPS_PARTITION_BYTES", "0", "must be a whole number of bytes, at least 8"),
        ("BYTEPS_CONNECT_TIMEOUT", "soon", "must be a number of seconds above 0"),
        ("BYTEPS_CONNECT_TIMEOUT", "inf", "must be a number of seconds above 0"),
        ("BYTEPS_FORCE_DISTRIBUTED", "maybe", "must be 1 (yes) or 0 (no)"),
        ("DMLC_ROLE", "master", "must be one of worker, server, scheduler, evaluator"),
        ("DMLC_PS_ROOT_PORT", "70000", "must be a whole number from 0 to 65535"),
        ("BYTEPS_JOB_ID", "x" * 65, "must be a text of at most 64 bytes"),
    ],
)
def test_a_value_of_the_wrong_form_gives_one_clear_sentence(variable, given, expected):
    with pytest.raises(ConfigError) as caught:
        Config.from_environment({variable: given})
    assert f'{variable} is "{given}", but {expected}' in str(caught.value)
    assert "\n" not in str(caught.value)


def test_flags_that_a_job_shares_travel_as_numbers():
    given = Config.from_environment({"BYTEPS_DETERMINISTIC": "1"})
    assert given.shared_values()["deterministic"] == 1
    assert Config().with_shared_values(given.shared_values(), "scheduler").deterministic is True
    assert given.with_shared_values(Config().shared_values(), "scheduler").deterministic is False


def test_an_argument_of_the_wrong_type_is_refused():
    with pytest.raises(ConfigError, match=r"part_bytes\) is '4MB', but must be a whole number"):
        Config(part_bytes="4MB")
    with pytest.raises(ConfigError, match="must be a whole number"):
        Config(io_threads=True)


def test_an_unknown_setting_names_the_nearest_one():
    with pytest.raises(ConfigError, match="no setting 'part_byte'; did you mean part_bytes"):
        Config.from_environment({}, part_byte=1)


def test_an_empty_variable_counts_as_unset():
    assert Config.from_environment({"DMLC_WORKER_ID": "", "TF_CONFIG": " "}) == Config()


@pytest.mark.parametrize(
    "env, rank, size",
    [
        ({"DMLC_NUM_WORKER": "3", "DMLC_WORKER_ID": "2"}, 2, 3),
        (
            {
                "DMLC_NUM_WORKER": "2",
                "DMLC_WORKER_ID": "1",
                "BYTEPS_LOCAL_RANK": "3",
                "BYTEPS_LOCAL_SIZE": "4",
            },
            7,
            8,
        ),
        ({"BYTEPS_LOCAL_RANK": "1", "BYTEPS_LOCAL_SIZE": "2"}, 1, 2),
        ({"BYTEPS_GLOBAL_RANK": "4", "BYTEPS_GLOBAL_SIZE": "5", "DMLC_NUM_WORKER": "2"}, 4, 5),
        ({"DMLC_NUM_WORKER": "2"}, None, 2),
    ],
)
def test_ranks(env, rank, size):
    config = Config.from_environment({**SCHEDULER, **env})
    assert (config.rank, config.size, config.distributed) == (rank, size, True)


@pytest.mark.parametrize(
    "env, parts",
    [
        (
            {"DMLC_NUM_WORKER": "2", "DMLC_WORKER_ID": "2"},
            ["DMLC_WORKER_ID is 2", "DMLC_NUM_WORKER is 2"],
        ),
        ({"BYTEPS_LOCAL_RANK": "1"}, ["BYTEPS_LOCAL_RANK is 1", "from 0 to 0"]),
        ({"BYTEPS_GLOBAL_RANK": "1"}, ["BYTEPS_GLOBAL_SIZE", "set both or neither"]),
        (
            {"DMLC_NUM_WORKER": "2", "BYTEPS_COLOCATED_SERVER": "0"},
            ["BYTEPS_COLOCATED_SERVER is False", "DMLC_NUM_SERVER", "start a server"],
        ),
        ({"BYTEPS_HEARTBEAT_TIMEOUT": "4"}, ["BYTEPS_HEARTBEAT_INTERVAL", "is 5.0"]),
    ],
)
def test_contradictions_name_the_variables_and_their_values(env, parts):
    with pytest.raises(ConfigError) as caught:
        Config.from_environment({**SCHEDULER, **env})
    for part in parts:
        assert part in str(caught.value)


def test_several_workers_need_a_scheduler():
    with pytest.raises(ConfigError, match="DMLC_PS_ROOT_URI .* not set, but DMLC_NUM_WORKER is 2"):
        Config.from_environment({"DMLC_NUM_WORKER": "2"})


def test_servers_are_colocated_unless_there_are_server_processes():
    two = {**SCHEDULER, "DMLC_NUM_WORKER": "2"}
    assert Config.from_environment(two).hosts_server
    assert not Config.from_environment({**two, "DMLC_NUM_SERVER": "1"}).hosts_server
    mixed = {**two, "DMLC_NUM_SERVER": "1", "BYTEPS_COLOCATED_SERVER": "1"}
    assert Config.from_environment(mixed).hosts_server


def test_one_worker_forced_to_be_distributed_hosts_everything():
    config = Config.from_environment({"BYTEPS_FORCE_DISTRIBUTED": "1"})
    assert config.distributed and config.hosts_server and config.hosts_scheduler


class TestTfConfig:
    """TF_CONFIG says the whole job (protocol rule 23)."""

    def test_worker_0_hosts_the_scheduler_at_its_listed_port(self):
        workers = ["a:1000", "b:2000"]
        first = Config.from_environment(tf_config("worker", 0, worker=workers))
        second = Config.from_environment(tf_config("worker", 1, worker=workers))
        for config in (first, second):
            assert (config.scheduler_host, config.scheduler_port) == ("a", 1000)
            assert (config.size, config.hosts_server, config.server_port) == (2, True, 0)
        assert (first.rank, first.hosts_scheduler, first.node_host) == (0, True, "a")
        assert (second.rank, second.hosts_scheduler, second.node_host) == (1, False, "b")
        assert first.job_id == second.job_id

    def test_chief_is_rank_0(self):
        cluster = {"chief": ["c:1"], "worker": ["a:2", "b:3"]}
        chief = Config.from_environment(tf_config("chief", 0, **cluster))
        worker = Config.from_environment(tf_config("worker", 1, **cluster))
        assert (chief.rank, chief.hosts_scheduler, worker.rank, worker.size) == (0, True, 2, 3)
        assert worker.scheduler_host == "c"

    def test_ps_tasks_are_the_servers(self):
        cluster = {"worker": ["a:1", "b:2"], "ps": ["[::1]:3", "d:4"]}
        server = Config.from_environment(tf_config("ps", 0, **cluster))
        worker = Config.from_environment(tf_config("worker", 1, **cluster))
        assert (server.role, server.server_id, server.server_port) == ("server", 0, 3)
        assert server.node_host == "::1"
        assert (worker.num_servers, worker.hosts_server) == (2, False)

    def test_evaluator_is_a_job_of_its_own(self):
        config = Config.from_environment(tf_config("evaluator", 0, worker=["a:1", "b:2"]))
        assert (config.role, config.rank, config.size, config.distributed) == (
            "evaluator",
            0,
            1,
            False,
        )

    def test_one_worker_needs_no_network(self):
        assert not Config.from_environment(tf_config("worker", 0, worker=["a:1"])).distributed
        assert not Config.from_environment({"TF_CONFIG": "{}"}).distributed

    def test_one_host_for_all_is_one_machine(self):
        same = {"chief": ["h:1"], "worker": ["h:2"], "ps": ["h:3"]}
        for task_type in same:
            assert Config.from_environment(tf_config(task_type, 0, **same)).on_one_machine
        two = {**same, "ps": ["i:3"]}
        assert not Config.from_environment(tf_config("chief", 0, **two)).on_one_machine

    def test_other_clusters_have_other_job_ids(self):
        one = Config.from_environment(tf_config("worker", 0, worker=["a:1", "b:2"]))
        other = Config.from_environment(tf_config("worker", 0, worker=["a:1", "b:3"]))
        assert one.job_id != other.job_id

    def test_a_contradicting_variable_is_refused(self):
        env = {**tf_config("worker", 0, worker=["a:1", "b:2"]), "DMLC_NUM_WORKER": "3"}
        with pytest.raises(ConfigError, match="DMLC_NUM_WORKER says .* is 3, but TF_CONFIG says 2"):
            Config.from_environment(env)

    @pytest.mark.parametrize(
        "text, expected",
        [
            ("{", "is not JSON"),
            ("[]", "must be a JSON object"),
            ('{"cluster": {"worker": ["a:1"]}}', r'task\["type"\] is None'),
            ('{"cluster": {"worker": {"1": "a:1"}}}', "must list all addresses"),
            (tf_config("worker", 2, worker=["a:1"])["TF_CONFIG"], r'task\["index"\] is 2'),
            (tf_config("worker", 0, worker=["a", "b:1"])["TF_CONFIG"], "'a' is not of the form"),
            (tf_config("ps", 0, ps=["a:1"])["TF_CONFIG"], "names no chief and no worker"),
        ],
    )
    def test_malformed(self, text, expected):
        with pytest.raises(ConfigError, match=expected):
            Config.from_environment({"TF_CONFIG": text})


class TestVan:
    def test_tcp_is_the_default(self):
        assert Config.from_environment({}).van == "tcp"

    @pytest.mark.parametrize(
        "given, expected", [("1", "rdma"), ("ibverbs", "rdma"), ("0", "tcp"), ("zmq", "tcp")]
    )
    def test_the_originals_variable(self, given, expected):
        config = Config.from_environment({"DMLC_ENABLE_RDMA": given})
        assert config.van == expected
        assert config.named("van") == f"DMLC_ENABLE_RDMA is {expected!r}"

    def test_ours_says_more(self):
        env = {"DMLC_ENABLE_RDMA": "1", "BYTEPS_VAN": "auto"}
        assert Config.from_environment(env).van == "auto"

    def test_something_else(self):
        with pytest.raises(ConfigError, match='DMLC_ENABLE_RDMA is "ucx", but must be 1'):
            Config.from_environment({"DMLC_ENABLE_RDMA": "ucx"})
        with pytest.raises(ConfigError, match="must be one of tcp, rdma, auto"):
            Config.from_environment({"BYTEPS_VAN": "infiniband"})


class TestUnknownVariables:
    @pytest.fixture(autouse=True)
    def forget(self, monkeypatch):
        monkeypatch.setattr(variables, "_mentioned", set())

    def warnings(self, caplog, env):
        caplog.clear()
        variables.mention_unused_variables(env)
        assert all(record.levelno == logging.WARNING for record in caplog.records)
        return [record.message for record in caplog.records]

    def test_a_misspelt_variable_is_warned_of_once(self, caplog):
        env = {"BYTEPS_PARTITON_BYTES": "1"}
        [message] = self.warnings(caplog, env)
        assert "BYTEPS_PARTITON_BYTES; did you mean BYTEPS_PARTITION_BYTES?" in message
        assert self.warnings(caplog, env) == []

    def test_a_prefix_alone_makes_no_two_names_alike(self, caplog):
        [message] = self.warnings(caplog, {"BYTEPS_FOO": "1"})
        assert message == "there is no setting BYTEPS_FOO; see python -m tf_byteps.config"

    def test_it_is_said_where_something_is_missing(self, caplog):
        with pytest.raises(ConfigError, match="DMLC_PS_ROOT_URI"):
            Config.from_environment({"DMLC_NUM_WORKER": "2", "BYTEPS_JOBID": "x"})
        assert "did you mean BYTEPS_JOB_ID?" in caplog.text

    def test_others_variables_are_explained(self, caplog):
        env = {"BYTEPS_USE_HASH_KEY": "1", "DMLC_LOCAL": "0", "HOROVOD_TIMELINE": "t.json"}
        found = self.warnings(caplog, env)
        assert [message.split(" has no effect in tf_byteps: ")[0] for message in found] == [*env]
        assert "use BYTEPS_TIMELINE" in found[2]

    def test_all_that_are_known_are_in_the_guide(self):
        page = (pathlib.Path(__file__).parents[2] / "docs" / "migration.md").read_text()
        assert not [name for name in original_variables.IGNORED if f"`{name}`" not in page]

    def test_other_variables_are_nobodys_business(self, caplog):
        assert self.warnings(caplog, {"HOME": "/", "TF_CPP_MIN_LOG_LEVEL": "2"}) == []

    @pytest.mark.parametrize(
        "env, speaks",
        [
            ({}, True),
            ({"DMLC_NUM_WORKER": "2", "DMLC_WORKER_ID": "0", **SCHEDULER}, True),
            ({"DMLC_NUM_WORKER": "2", "DMLC_WORKER_ID": "1", **SCHEDULER}, False),
            ({"BYTEPS_MIN_WORKERS": "1", "BYTEPS_MEMBER": "1", **SCHEDULER}, False),
            ({"DMLC_ROLE": "server", **SCHEDULER}, True),  # begun by hand
            ({"DMLC_ROLE": "scheduler", "BYTEPS_GLOBAL_SIZE": "2", **SCHEDULER}, False),
        ],
    )
    def test_one_process_of_a_job_speaks_for_all(self, env, speaks):
        assert Config.from_environment(env).speaks_for_all == speaks


def test_log_levels_of_the_original():
    assert Config.from_environment({"BYTEPS_LOG_LEVEL": "trace"}).log_level == "DEBUG"
    assert Config.from_environment({"BYTEPS_LOG_LEVEL": "FATAL"}).log_level == "ERROR"


def test_the_engine_chooses_what_is_not_set():
    assert Config(part_bytes=1000).shared_values()["credit_bytes"] == 0
    assert Config(credit_bytes=10).shared_values()["part_bytes"] == 0
    assert Config(part_bytes=1000, credit_bytes=10).shared_values()["credit_bytes"] == 10


def test_printed_config_says_where_values_come_from():
    text = str(Config.from_environment({"BYTEPS_IO_THREADS": "3"}, part_bytes=64))
    lines = {line.split()[0]: line for line in text.splitlines()}
    assert list(lines) == [name for name, option in OPTIONS.items() if option.listed]
    assert lines["io_threads"].split() == ["io_threads", "3", "from", "BYTEPS_IO_THREADS"]
    assert lines["part_bytes"].endswith("from argument")
    assert lines["connect_timeout"].endswith("default")


def test_what_launchers_set_is_printed_where_they_do():
    text = str(Config.from_environment({"BYTEPS_MEMBER": "a"}))
    (line,) = (line for line in text.splitlines() if line.startswith("member "))
    assert line.split() == ["member", "a", "from", "BYTEPS_MEMBER"]


def test_every_listed_field_is_documented_once():
    table = config_module.markdown()
    fields = {field.name for field in dataclasses.fields(Config)} - {"sources"}
    assert fields == set(OPTIONS)
    variables = [option.variable for option in OPTIONS.values()]
    assert len(set(variables)) == len(variables)
    for option in OPTIONS.values():
        assert table.count(f"* **`{option.variable}`** (") == option.listed
    assert table.count("## ") == len(HEADINGS) == 6 and set(HEADINGS) <= fields


def test_there_are_few_settings_with_short_defaults():
    """What only launchers and tests set, and what another page describes, is not listed."""
    listed = [name for name, option in OPTIONS.items() if option.listed]
    assert len(listed) <= 45
    assert [name for name in listed if len(default(name).split()) > 7] == []


def test_config_is_frozen_and_its_errors_are_ours():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().part_bytes = 1
    assert issubclass(ConfigError, BytePSError) and issubclass(ConfigError, ValueError)


@pytest.mark.parametrize(
    "arguments, env, code, expected",
    [
        ([], {"BYTEPS_IO_THREADS": "5"}, 0, "from BYTEPS_IO_THREADS"),
        (["--markdown"], {}, 0, "* **`BYTEPS_PARTITION_BYTES`** (`part_bytes`): "),
        ([], {"BYTEPS_IO_THREADS": "x"}, 1, 'BYTEPS_IO_THREADS is "x"'),
        (["--wrong"], {}, 2, "usage"),
    ],
)
def test_command(arguments, env, code, expected):
    command = [sys.executable, "-m", "tf_byteps.config", *arguments]
    done = subprocess.run(command, env=clean_environment(**env), capture_output=True, text=True)
    assert done.returncode == code
    assert expected in done.stdout + done.stderr


def test_the_documentation_has_the_same_settings():
    text = (pathlib.Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    assert text.endswith(config_module.markdown() + "\n"), (
        "replace the settings in docs/configuration.md by what python -m tf_byteps.config "
        "--markdown prints"
    )


def _values(options, name):
    """What the engine's options, and the groups in them, have by this name."""
    groups = (getattr(options, group) for group in of_engine.OPTION_GROUPS)
    return [getattr(each, name) for each in (options, *groups) if hasattr(each, name)]


def test_the_engine_gets_the_defaults_that_it_has():
    """They are written once, in cc/base/job.h; each comes back to where it was read."""
    default, read = (
        _engine.EngineOptions(),
        of_engine.engine_options(Config().shared_values(), Config()),
    )
    # Of each gradient; of the scheduler.
    others = ("backup_workers", "row_sum_workers", "connections_per_server")
    names = [name for name, option in OPTIONS.items() if option.shared and name not in others]
    for name in [*names, "read_peer_memory"]:
        in_engine, in_python = _values(default, name), _values(read, name)
        assert len(in_engine) == 1 and in_engine == in_python, name


@pytest.mark.parametrize(
    ("processors", "workers", "threads"), [(2, 1, 1), (4, 1, 2), (32, 1, 4), (96, 8, 2), (96, 3, 4)]
)
def test_workers_of_a_host_share_its_processors(monkeypatch, processors, workers, threads):
    monkeypatch.setattr(of_engine, "processors", lambda: processors)
    config = Config(local_size=workers, scheduler_host="127.0.0.1", scheduler_port=1)
    assert of_engine.engine_options(config.shared_values(), config).network.io_threads == threads
