"""Reads the command line of bpslaunch."""

import argparse
import difflib
import shutil
import sys
from collections.abc import Sequence
from typing import NoReturn

from tf_byteps.errors import ConfigError
from tf_byteps.launch import job_file
from tf_byteps.launch.parser import DRY_RUN, KINDS, PROCESSES, new_parser

_LIKE = 0.75  # see difflib


def read(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads a command line, and the file that it names with --config.

    Args:
        arguments: words after the program's name. Default: those of this process.

    Raises:
        ConfigError: the file cannot be read, or says what bpslaunch does not understand.
        SystemExit: the command line is wrong, or asks for help.
    """
    arguments = _with_kind(new_parser(), sys.argv[1:] if arguments is None else arguments)
    options = new_parser().parse_args(arguments)
    if options.config:
        given = _of_file(options.config)
        options = new_parser().parse_args(arguments, namespace=argparse.Namespace(**vars(given)))
        options.command = options.command or given.command
    if options.command[:1] == ["--"]:
        del options.command[0]
    if options.module:
        options.command = [sys.executable, "-m", *options.module]
    return options


def _with_kind(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """The words with "=processes" behind a --dry-run that says no kind, before the command."""
    found, position = list(words), 0
    known = parser._option_string_actions
    while position < len(found) and found[position].startswith("-") and found[position] != "--":
        word = found[position]
        if word == DRY_RUN:
            following = found[position + 1] if position + 1 < len(found) else ""
            if following not in KINDS:
                if (kind := _meant(following)) and shutil.which(following) is None:
                    parser.error(
                        f"argument {DRY_RUN}: there is no program {following!r}: did you mean "
                        f"{DRY_RUN} {kind}?"
                    )
                found[position] = f"{DRY_RUN}={PROCESSES}"
                return found
        takes_value = word in known and known[word].nargs is None
        position += 2 if takes_value else 1
    return found


def _meant(word: str) -> str:
    """The kind of --dry-run that a word is like, or ""."""
    lower = word.lower()
    begun = [kind for kind in KINDS if len(word) > 2 and kind.startswith(lower)]
    return next(iter(begun or difflib.get_close_matches(lower, KINDS, 1, _LIKE)), "")


def _of_file(path: str) -> argparse.Namespace:
    words, command = job_file.read(path)

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise ConfigError(
                f"{path}: {message} (a key is an option of bpslaunch without its dashes; "
                f"bpslaunch --help lists them)"
            )

    parser = new_parser(Parser)
    parser.allow_abbrev = False  # what is short for one option today may be short for two later
    options = parser.parse_args(words)
    options.command = command
    return options


def refuse(message: str) -> NoReturn:
    """Ends as argparse does when the command line is wrong."""
    new_parser().error(message)
