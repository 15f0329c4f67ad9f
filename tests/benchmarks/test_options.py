"""Options of benchmarks that take them by absl."""

import subprocess
import sys

import pytest

from tests.cluster import ROOT


def _run(*arguments):
    command = [sys.executable, "-m", "benchmarks.rendezvous", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_an_option_is_read_and_nothing_is_logged():
    done = _run("--participants", "2")
    assert done.returncode == 0, done.stderr
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert names == ["wall", "participants_cpu", "scheduler_cpu"]
    assert "joined" not in done.stderr


def test_help_shows_the_program_and_its_options():
    done = _run("--help")
    assert "How long n processes take to find each other" in done.stdout
    assert "--participants: processes" in done.stdout


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--participants", "0"], "0 is not a positive integer"),
        (["--rounds", "1"], "Unknown command line flag 'rounds'"),
        (["8"], "unexpected arguments: 8"),
    ],
)
def test_what_is_no_option_is_refused(arguments, said):
    done = _run(*arguments)
    assert done.returncode == 1
    assert said in done.stdout + done.stderr
