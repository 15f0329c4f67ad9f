"""Programs on a terminal of their own, and what they show there."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

from tests.cluster import ROOT, clean_environment

# The terminal becomes that of a new session, as a login's. A process with threads cannot do this
# between a fork and the program's start: a process of its own does.
_ON_TERMINAL = """
import os, sys
os.login_tty(int(sys.argv[1]))
os.execvp(sys.argv[2], sys.argv[2:])
"""


def shown_on_a_terminal(*command, columns=80, code=0, cwd=ROOT, **variables):
    """What a command sends to its terminal until it ends.

    Args:
        command: the program and its arguments.
        columns: the terminal's width.
        code: the exit code that it must end with.
        cwd: the folder that it runs in.
        **variables: set in its environment, beside those of `clean_environment`.
    """
    terminal, its_end = pty.openpty()
    fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", _ON_TERMINAL, str(its_end), *command],
        pass_fds=[its_end],
        cwd=cwd,
        env=clean_environment(**variables),
    )
    os.close(its_end)
    shown = b""
    try:
        while data := os.read(terminal, 1 << 16):
            shown += data
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(terminal)
    assert process.wait() == code, shown
    return shown.decode()
