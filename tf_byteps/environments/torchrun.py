"""torchrun's variables, which other launchers set, too (Kubeflow's PyTorchJob, accelerate)."""

from collections.abc import Mapping

from tf_byteps.environments.place import Place, has, numbered, quote, whole
from tf_byteps.errors import ConfigError

SOURCE = "torchrun"
_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def read(environment: Mapping[str, str]) -> Place | None:
    """See the package. The scheduler listens at the port after PyTorch's own store."""
    if not has(environment, "RANK", "WORLD_SIZE"):
        return None
    size = whole(environment, "WORLD_SIZE")
    if size > 1 and not has(environment, "MASTER_ADDR", "MASTER_PORT"):
        raise ConfigError(
            f"{quote(environment, 'RANK', 'WORLD_SIZE')}, but MASTER_ADDR and MASTER_PORT do not "
            f"say where rank 0 is: set them, or unset WORLD_SIZE"
        )
    if size == 1:
        return None
    # "none" is torchrun's default; after a failure it starts all processes again.
    run, attempt = (
        environment.get(f"TORCHELASTIC_{name}", "") for name in ("RUN_ID", "RESTART_COUNT")
    )
    is_local = has(environment, "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    return numbered(
        SOURCE,
        quote(environment, *_NAMES),
        whole(environment, "RANK"),
        size,
        whole(environment, "LOCAL_RANK") if is_local else None,
        whole(environment, "LOCAL_WORLD_SIZE") if is_local else None,
        environment["MASTER_ADDR"].strip(),
        whole(environment, "MASTER_PORT") + 1,
        f"torchrun-{run[:40]}-{attempt or 0}",
    )
