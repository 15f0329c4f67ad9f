"""Prints what this environment amounts to; see the package."""

import os
import sys

from tf_byteps.config.config import Config
from tf_byteps.config.table import markdown
from tf_byteps.errors import ConfigError


def _place_in_words(config: Config) -> str:
    """What this process is, and which variable or launcher says so."""
    reason = config.topology.reason
    if not reason:
        return "the only worker of its job"
    says = f"as {config.sources.get(reason, 'an argument')} says"
    if config.role != "worker":
        return f"a {config.role}, {says}"
    if config.elastic:
        return f"a worker of an elastic job, {says}"
    number = "a worker" if config.rank is None else f"worker {config.rank}"
    return f"{number} of {config.size}, {says}"


def _main() -> int:
    prints_all = sys.argv[1:] == ["--markdown"]
    if sys.argv[1:] and not prints_all:
        print("usage: python -m tf_byteps.config [--markdown]", file=sys.stderr)
        return 2
    try:
        if prints_all:
            print(markdown(), flush=True)
            return 0
        config = Config.from_environment()
        print(f"{config}\n\nThis process is {_place_in_words(config)}.", flush=True)
    except BrokenPipeError:  # as in `python -m tf_byteps.config | head`
        # Nor can the interpreter flush what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ConfigError as error:
        print(f"tf_byteps: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
