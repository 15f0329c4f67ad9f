"""Lines that a process writes again and again, above all Keras's progress bar."""

import subprocess
import sys

import pytest

from tests.cluster import ROOT, clean_environment
from tests.selection import some_long
from tests.terminals import shown_on_a_terminal

_TRAINING = [sys.executable, "-m", "tests.launch.bar_training"]


def _bars(text, rank):
    """The lines of a worker with the end of a bar."""
    return [
        line for line in text.splitlines() if line.startswith(f"[worker {rank}]") and "━" in line
    ]


@pytest.mark.parametrize("how", some_long(["strategy", "optimizer"], ["optimizer"]))
def test_keras_shows_the_bar_of_rank_0(launch, how):
    running = launch("-np", "2", *_TRAINING, how)
    assert running.wait(200) == 0, running.err
    assert running.out.count("] done\n") == 2
    ends = [line for line in _bars(running.out, 0) if "4/4" in line or "2/2" in line]
    assert len(ends) >= 4  # two epochs, evaluate and predict
    assert _bars(running.out, 1) == []
    assert all(line.startswith("[worker ") for line in running.out.splitlines()), running.out
    assert "\b" not in running.out


def test_a_bar_among_the_callbacks_is_shown_by_each(launch):
    running = launch("-np", "2", *_TRAINING, "own")
    assert running.wait(200) == 0, running.err
    assert _bars(running.out, 0) and _bars(running.out, 1)


def _script(text):
    return ["-np", "1", "--quiet", "sh", "-c", text]


@pytest.mark.parametrize("how", [r"\b\b\b\r1/3", r"1/3\r"])
def test_a_line_that_is_replaced_keeps_its_prefix(launch, how):
    """The sign that does it comes before, as Keras's, or after; only what is new is printed."""
    texts = [how.replace("1/3", f"{n}/3") for n in (1, 2, 3)]
    script = f"printf '{texts[0]}'; sleep 1; printf '{texts[1]}{texts[2]}'; sleep 1; echo; echo end"
    running = launch(*_script(script))
    assert running.wait() == 0, running.err
    with open(running._files[0], newline="") as file:
        assert file.read() == "[worker 0] 1/3\r[worker 0] 3/3\n[worker 0] end\n"


def test_a_bar_that_never_rests_is_shown_meanwhile(launch, tmp_path):
    script = f"until test -e {tmp_path}/seen; do printf '\\rbar'; sleep 0.02; done"
    running = launch(*_script(script))
    running.wait_for("[worker 0] bar")
    (tmp_path / "seen").touch()
    assert running.wait() == 0


def test_lines_that_end_as_on_windows(launch):
    running = launch(*_script(r"printf 'a\r\nb\r\n'"))
    assert running.wait() == 0
    assert running.out == "[worker 0] a\n[worker 0] b\n"


def test_the_report_of_a_failure_has_a_bar_once(launch):
    script = r"for n in 1 2 3; do printf '\rbar %s' $n; sleep 0.5; done; printf ' end'; exit 3"
    script = f"[ $BYTEPS_GLOBAL_RANK = 0 ] || exec sleep 60; {script}"
    running = launch("-np", "2", "--show", "1", "sh", "-c", script)
    assert running.wait() == 3
    assert running.err.count("bar 3 end") == 1 and "bar 2" not in running.err


def _on_a_terminal(*arguments, columns=80, code=0):
    """What bpslaunch sends to a terminal of this width."""
    command = [sys.executable, "-m", "tf_byteps.launch", *arguments]
    return shown_on_a_terminal(*command, columns=columns, code=code, NO_COLOR="1", TERM="xterm")


def test_a_terminal():
    """What was longer is erased."""
    shown = _on_a_terminal(*_script(r"printf 'long'; sleep 1; printf '\rnew'; sleep 1; echo"))
    assert "[worker 0] long\r\x1b[K[worker 0] new\r\n" in shown


def test_a_bar_is_cut_to_the_terminals_width():
    """Else it takes two lines, of which only one is replaced. What does not fit comes at its end.

    Colours and wide letters count as what they take.
    """
    steps = [rf"\033[1m{n}/3\033[0m \346\227\245----------- loss: 0.5" for n in (1, 2, 3)]
    script = "; ".join(f"printf '\\r{step}'; sleep 1" for step in steps)
    shown = _on_a_terminal(*_script(f"{script}; echo"), columns=29)
    cut = "[worker 0] \x1b[1m{}/3\x1b[0m \u65e5-----------\r\x1b[K"
    whole = "[worker 0] \x1b[1m3/3\x1b[0m \u65e5----------- loss: 0.5\r\n"
    assert cut.format(1) + cut.format(2) + whole in shown, shown


@pytest.mark.parametrize("end", ["", r"\r2/2 done"])
def test_a_bar_makes_room_for_the_line_of_another_worker(tmp_path, end):
    """On a terminal it goes on below, and its states before are not left above."""
    script = (
        "case $BYTEPS_GLOBAL_RANK in"
        f" 0) printf '\\r0/2'; sleep 1; printf '\\r1/2 bar'; until test -e {tmp_path}/said;"
        f" do sleep 0.1; done; sleep 1; printf '{end}'; sleep 1; echo;;"
        f" 1) sleep 4; echo cause >&2; touch {tmp_path}/said;; esac"
    )
    shown = _on_a_terminal("-np", "2", "--quiet", "sh", "-c", script)
    last = "2/2 done" if end else "1/2 bar"
    expected = f"[worker 0] 1/2 bar\r\x1b[K[worker 1] cause\r\n[worker 0] {last}\r\n"
    assert expected in shown, shown


def test_a_line_of_another_worker_begins_anew_wherever_both_go(launch, tmp_path):
    """To the output of one and the errors of the other, which are one file."""
    script = (
        "case $BYTEPS_GLOBAL_RANK in"
        f" 0) printf '12/30 bar'; until test -e {tmp_path}/said; do sleep 0.1; done;;"
        f" 1) sleep 1; echo cause >&2; touch {tmp_path}/said;; esac"
    )
    command = [sys.executable, "-m", "tf_byteps.launch", "-np", "2", "--quiet", "sh", "-c", script]
    done = subprocess.run(
        command, cwd=ROOT, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0 and lines[:2] == ["[worker 0] 12/30 bar", "[worker 1] cause"]


@pytest.mark.parametrize(
    "arguments, code, sentence",
    [
        (("-np", "2", "true"), 0, "bpslaunch: no worker has joined the job: each has run alone. "),
        (("-np", "3", "-H", "localhost:2", "true"), 2, "takes only 2 workers: allow more with -H"),
        (("--nproc_per_node", "2", "x"), 2, "in its place bpslaunch has -np, the number of all "),
    ],
)
def test_sentences_of_bpslaunch_are_folded_between_words(arguments, code, sentence):
    """A terminal would cut words. What is no terminal gets a line: programs may read it."""
    shown = _on_a_terminal(*arguments, columns=60, code=code)
    lines = [line for line in shown.splitlines() if not line.startswith("usage: ")]
    assert max(map(len, lines)) < 60
    assert sentence in " ".join(map(str.strip, lines)) and sentence not in shown
    command = [sys.executable, "-m", "tf_byteps.launch", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=clean_environment(), capture_output=True)
    assert sentence in done.stderr.decode()


@pytest.mark.parametrize("command", [[], ["doctor"], ["test"], ["plan"], ["env"]])
def test_the_help_fits_a_terminal(command):
    shown = _on_a_terminal(*command, "--help")
    assert max(map(len, shown.splitlines())) <= 80
