"""The table of docs/strategy_tests.md."""

from tests.foreign import on_jax, running

_HEAD = ["| | program | compared with one process | on JAX |", "|---|---|---|---|"]


def markdown():
    """The table, a row for each program."""
    rows = [_row(name, program) for name, program in running.all_programs().items()]
    return "\n".join([*_HEAD, *rows])


def _row(name, program):
    words = f"equal within {program.tolerance:.0e}".replace("e-0", "e-")
    if program.on_average:
        words = f"losses within {program.tolerance:.0%}: each worker draws numbers of its own"
    if program.differs:
        words = f"differs: {program.differs}"
    return f"| `{name}` | {program.what} | {words} | {on_jax.column(name, program)} |"
