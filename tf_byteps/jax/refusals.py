"""What a job asks for that does not work on JAX."""

from tf_byteps.config import Config
from tf_byteps.errors import BytePSError


def check_config(config: Config) -> None:
    """Refuses a configuration that asks for what does not work on JAX.

    Args:
        config: of the job.

    Raises:
        BytePSError: something is asked for.
    """
    if config.enable_async:
        raise BytePSError(
            "BYTEPS_ENABLE_ASYNC does not work with KERAS_BACKEND=jax: leave it out, or use "
            "KERAS_BACKEND=tensorflow"
        )
