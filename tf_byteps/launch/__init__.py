"""bpslaunch: starts all processes of a job, here or over ssh, and ends them together.

`tf_byteps.launch.run` does so from Python: see `tf_byteps.launch.functions.run`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tf_byteps.launch.functions import run as run


def __getattr__(name: str) -> Any:
    # Not at once: every guard and scheduler imports this package.
    if name == "run":
        from tf_byteps.launch.functions import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
