"""`python -m tf_byteps.launch` is `bpslaunch`."""

import signal
import sys


def main() -> int:
    """Runs bpslaunch; returns its exit code, also if Ctrl-C comes while it is loaded."""
    try:
        from tf_byteps.launch.main import main as run

        return run()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
