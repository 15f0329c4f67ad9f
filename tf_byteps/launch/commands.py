"""The command that the workers run, before it is started."""

import argparse
import os
import re
import shutil
from collections.abc import Mapping, Sequence

from tf_byteps.errors import ConfigError
from tf_byteps.launch.arguments import refuse
from tf_byteps.launch.guard import why_not
from tf_byteps.launch.hosts import is_local


def require_command(options: argparse.Namespace) -> None:
    """Ends as a wrong command line does if it is missing, or reads its program from a terminal."""
    if not options.command:
        refuse("the command that the workers run is missing")
    if _reads_program(options.command):
        refuse(
            f"{' '.join(options.command)} reads its program from standard input, which workers do "
            f"not have: put it into a file"
        )


def check_program(
    command: Sequence[str], hosts: Sequence[str], environment: Mapping[str, str]
) -> None:
    """Returns if the workers' program is there, as far as that can be told on this machine.

    Args:
        command: the workers'.
        hosts: theirs. Of the programs of other machines nothing is known here.
        environment: the variables of processes here.

    Raises:
        ConfigError: this machine has no such program.
    """
    here = any(map(is_local, hosts))
    if here and shutil.which(command[0], path=environment.get("PATH")) is None:
        raise ConfigError(f"cannot start {why_not(command, 'there is no such program')}")


def _reads_program(command: Sequence[str]) -> bool:
    """Whether this is Python without a program of its own."""
    if not re.fullmatch(r"python[\d.]*", os.path.basename(command[0])):
        return False
    words = iter(command[1:])
    for word in words:
        if word in ("-W", "-X"):
            next(words, None)
        elif word == "-":
            return True
        elif re.match(r"-[a-zA-Z]*[cmVh]|--|[^-]", word):
            return False
    return True
