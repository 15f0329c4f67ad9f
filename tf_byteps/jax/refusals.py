"""What a job asks for that does not work on JAX."""

from collections.abc import Mapping

from tf_byteps.config import Config
from tf_byteps.errors import BytePSError


def check_config(config: Config, others: Mapping[str, object] | None = None) -> None:
    """Refuses a configuration that asks for what does not work on JAX.

    Args:
        config: of the job.
        others: what is asked for besides, by what a message calls it; false values ask for nothing.

    Raises:
        BytePSError: something is asked for.
    """
    asked = {
        "BYTEPS_BACKUP_WORKERS": config.backup_workers,
        **(others or {}),
    }
    for what, value in asked.items():
        if value:
            raise BytePSError(
                f"{what} does not work with KERAS_BACKEND=jax: leave it out, or use "
                "KERAS_BACKEND=tensorflow"
            )
