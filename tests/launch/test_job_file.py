"""bpslaunch --config: a job's options in a file."""

import pytest

from tf_byteps.errors import ConfigError
from tf_byteps.launch import arguments, job_file


@pytest.fixture
def file(tmp_path):
    """Writes a file of options: `file("np: 2")` is its path."""

    def write(text):
        path = tmp_path / "job.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


def test_a_job_in_a_file_trains(launch, program, file):
    words = ", ".join(program("train"))
    text = f"np: 2\nservers: 1\nenv:\n  GREETING: good morning\ncommand: [{words}]\n"
    running = launch("--config", file(text))
    assert running.wait() == 0, running.err
    assert "bpslaunch: 2 workers on 1 host (CPU), 1 server, TLS off\n" in running.err
    assert running.out.count("trained") == 2


def test_variables_of_both_arrive_and_the_command_line_counts_more(launch, file):
    text = "np: 3\nenv: {FIRST: a b, SECOND: '2', FROM_HERE: }\ncommand: 'false'\n"
    shown = ["sh", "-c", 'echo "$FIRST|$SECOND|$THIRD|$FROM_HERE"']
    given = ["-np", "1", "--env", "SECOND=two", "--env", "THIRD=3"]
    running = launch("--config", file(text), *given, *shown, FROM_HERE="here")
    assert running.wait() == 0, running.err
    assert running.out == "[worker 0] a b|two|3|here\n"


def test_every_form_of_a_value(file):
    text = """
        hosts: {host1: 4, "[fd00::2]": 2, host3: }
        server_hosts: [host4, host5]
        tls: true
        verbose: no
        grace: 2.5
        ssh-option: [User=ada, Port=22]
        show: 0
        resources: {cpu: 4, memory: 8Gi}
        command: [python, train.py, --epochs, 3]
    """
    options = arguments.read(["--config", file(text)])
    assert options.hosts == "host1:4,[fd00::2]:2,host3" and options.server_hosts == "host4,host5"
    assert options.tls and not options.verbose and options.grace == 2.5
    assert options.ssh_options == ["User=ada", "Port=22"]
    assert options.show == "0" and options.resources == "cpu=4,memory=8Gi"
    assert options.command == ["python", "train.py", "--epochs", "3"]
    assert options.workers is None and options.servers is None and options.variables == []


def test_what_the_command_line_leaves_out_stays(file):
    path = file("np: 2\nmin-np: 1\nssh-port: 2222\ncommand: python train.py")
    options = arguments.read(["--config", path, "--min-np", "2", "-m", "my.training"])
    assert (options.workers, options.min_workers, options.ssh_port) == (2, 2, 2222)
    assert options.command[1:] == ["-m", "my.training"]
    assert job_file.read(path)[1] == ["python", "train.py"]


@pytest.mark.parametrize(
    "text, said",
    [
        ("servrs: 2", "unrecognized arguments: --servrs=2"),
        ("server: 2", "unrecognized arguments: --server=2"),  # no abbreviations
        ("np: many", "'many' is not a whole number"),
        ("np: true", "expected one argument"),
        ("tls: 1", "ignored explicit argument '1'"),
        ("env: {TLS: yes}", "env: True is neither a text nor a number: write texts in quotes"),
        ("env: [[A]]", "env: ['A'] is neither a text nor a number"),
        ("config: other.yaml", "config: only the command line can set this"),
        ("command: {python: 3}", "command: a text or a list of words is expected"),
        ("command: [true]", "command: True is neither"),
        ("np: 2\nservers: 1\nnp: 4", "'np' occurs 2 times"),
        ("np: 2\n  servers: 1", "mapping values are not allowed here"),
        ("np 2", "lines such as 'np: 4' and 'servers: 2' are expected, not 'np 2'"),
        ("", "has no options"),
        (b"np: \xff\xfe", "cannot be read"),
        ("env: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("env: {BYTEPS_JOB_SECRET: 0123456789abcdef0123}", "everybody on this machine can see"),
    ],
)
def test_a_wrong_file_is_one_error(launch, file, text, said):
    running = launch("--config", file(text), "-np", "1", "true")
    assert running.wait() == 2
    assert running.err.startswith("bpslaunch: ") and said in running.err, running.err
    assert "Traceback" not in running.err


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match="--config missing.yaml cannot be read: .*No such file"):
        arguments.read(["--config", "missing.yaml", "true"])
