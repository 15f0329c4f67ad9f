"""`python -m tf_byteps.launch` is `bpslaunch`: the program, which knows all of its commands."""

import os
import signal
import sys

_DOCTOR, _TEST, _ENV, _PLAN = "doctor", "test", "env", ("plan", "--plan")


def main() -> int:
    """Runs bpslaunch; returns its exit code, also if Ctrl-C comes while it is loaded."""
    words = sys.argv[1:]
    try:
        if words[:1] == [_DOCTOR]:
            from tf_byteps.doctor.main import main as examine  # what no job needs

            return examine(words[1:])
        if words[:1] == [_TEST]:
            from tf_byteps.launch.trial import main as try_out

            return try_out(words[1:])
        if words[:1] == [_ENV]:
            from tf_byteps.doctor.environment import main as describe

            return describe(words[1:])
        if words and words[0] in _PLAN:
            from tf_byteps.launch.estimate import main as estimate

            return estimate(words[1:])
        from tf_byteps.launch.main import main as launch

        return launch(words)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # as in `bpslaunch ... | head`
        # Nor can the interpreter flush what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


if __name__ == "__main__":
    sys.exit(main())
