"""How far a build is stands on the terminal, although pip keeps what the build prints."""

import pathlib
import sys

from tests.terminals import shown_on_a_terminal

_TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
_BAZEL = r"""
printf '%s\n' "$@" > arguments
echo "Loading: 0 packages loaded" >&2
for n in 1 2 300 600 1,200; do echo "[$n / 1,200] Compiling cc/base/a.cc; 1s" >&2; done
exit 3
"""
_RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import build_progress
command = ["sh", "bazel.sh", "build", "//:stage"]
sys.exit(build_progress.run(command, ".", {"PATH": "/bin:/usr/bin"}))
"""


def test_progress_goes_to_the_terminal_behind_pip(tmp_path):
    (tmp_path / "bazel.sh").write_text(_BAZEL)
    # Its terminal is its own; its standard error is a file, as under pip.
    command = ["sh", "-c", 'exec "$@" 2> kept', "sh", sys.executable, "-c", _RUN, str(_TOOLS)]
    shown = shown_on_a_terminal(*command, code=3, cwd=tmp_path)
    lines = [line for line in shown.splitlines() if line]
    counts = [1, 300, 600, 1200]
    assert lines == [f"tf_byteps: {n} of 1200 files and links are built" for n in counts]
    kept = (tmp_path / "kept").read_text()
    assert kept.count("Compiling cc/base/a.cc") == 5 and "Loading: 0 packages" in kept
    assert (tmp_path / "arguments").read_text().split() == [
        "build",
        "--curses=no",
        "--color=no",
        "--show_progress_rate_limit=2",
        "//:stage",
    ]
