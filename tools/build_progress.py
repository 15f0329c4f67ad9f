"""Runs Bazel and shows how far it is, also where pip keeps what a build prints."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

_DONE = re.compile(r"^\[([\d,]+) / ([\d,]+)\] ")
_STEP = 10  # percent between two lines


def run(command: Sequence[str], folder: str, environment: Mapping[str, str]) -> int:
    """Runs `bazel ... build` and returns its exit code.

    pip shows nothing of a build but a spinner. So while standard error is no terminal, a line for
    each tenth of the actions goes to the terminal that the user sits at, if there is one. All that
    Bazel says stays in standard error: `pip install -v` shows it.
    """
    if sys.stderr.isatty():
        return subprocess.run(command, cwd=folder, env=environment).returncode
    position = command.index("build") + 1
    calm = ["--curses=no", "--color=no", "--show_progress_rate_limit=2"]
    command = [*command[:position], *calm, *command[position:]]
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    with process, _terminal() as terminal:
        said = -_STEP
        for line in process.stderr:
            sys.stderr.write(line)
            found = _DONE.match(line)
            if found is None or terminal is None:
                continue
            done, total = (int(number.replace(",", "")) for number in found.groups())
            # Bazel learns of more actions while it builds.
            percent = 100 * done // max(total, 1)
            if percent >= said + _STEP:
                said = percent
                terminal.write(f"\r\ntf_byteps: {done} of {total} files and links are built\r\n")
                terminal.flush()
    return process.returncode


@contextlib.contextmanager
def _terminal() -> Iterator[TextIO | None]:
    try:
        terminal = open("/dev/tty", "w", encoding="utf-8")  # noqa: SIM115
    except OSError:  # in the background, or in a container without one
        yield None
        return
    with terminal:
        yield terminal
