"""Runs a benchmark with the options that it has defined by `absl.flags`."""

from collections.abc import Callable, Sequence

from absl import app, logging

from benchmarks.sessions import BenchmarkError


def run(main: Callable[[], bool]) -> None:
    """Reads the options and ends the process.

    Args:
        main: returns whether all goals are reached: code 0, else 1. A BenchmarkError becomes one
            line and code 1. Its module's docstring and flags are what `--help` shows.
    """

    def checked(arguments: Sequence[str]) -> int:
        if arguments[1:]:
            raise app.UsageError(f"unexpected arguments: {' '.join(arguments[1:])}")
        logging.set_verbosity(logging.WARNING)  # `app.run` prints all that the package logs
        try:
            return 0 if main() else 1
        except BenchmarkError as error:
            raise SystemExit(f"error: {error}") from None

    app.run(checked)
