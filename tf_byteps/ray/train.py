"""Ray Train: brings the workers that one of its trainers has started into a job."""

import os
import secrets

from tf_byteps.config import OPTIONS
from tf_byteps.environments.place import port_for, ports_in
from tf_byteps.rendezvous.secret import new_secret


def setup() -> None:
    """Tells tf_byteps which workers of Ray Train train together; call it first, on each of them.

    It sets the environment variables that `tf_byteps.init` and `BytePSStrategy` read, with a new
    secret. Under `TensorflowTrainer` these already know all but the secret.

    Raises:
        ImportError: what Ray Train needs is not installed.
        RuntimeError: the process is not a worker of Ray Train.

    Example:

    >>> def train_loop():
    ...     tf_byteps.ray.setup()
    ...     strategy = tf_byteps.BytePSStrategy()
    >>> ray.train.data_parallel_trainer.DataParallelTrainer(
    ...     train_loop, scaling_config=ray.train.ScalingConfig(num_workers=2)
    ... ).fit()
    """
    try:
        import ray.train  # needs more packages than Ray, which RayLauncher does without
        from ray.train.collective import broadcast_from_rank_zero
    except ImportError as error:
        raise ImportError(
            "tf_byteps.ray.setup needs Ray Train, which is not installed here: "
            "run pip install '.[ray]' in the sources of tf_byteps"
        ) from error
    context = ray.train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    if size == 1:
        return
    address = ray.util.get_node_ip_address()
    job_id = f"ray-{secrets.token_hex(8)}"
    shared = {"BYTEPS_JOB_SECRET": new_secret(), "BYTEPS_JOB_ID": job_id}
    if "TF_CONFIG" not in os.environ:
        shared["DMLC_PS_ROOT_URI"] = address
        given = os.environ.get(OPTIONS["ports"].variable, "")
        ports = [ports_in(OPTIONS["ports"].read(given))] if given.strip() else []
        shared["DMLC_PS_ROOT_PORT"] = str(port_for(job_id, *ports))
    os.environ.update(broadcast_from_rank_zero(shared))
    if "TF_CONFIG" not in os.environ:
        os.environ.update(
            DMLC_ROLE="worker",
            DMLC_NODE_HOST=address,
            BYTEPS_GLOBAL_SIZE=str(size),
            BYTEPS_GLOBAL_RANK=str(rank),
            BYTEPS_LOCAL_RANK=str(context.get_local_rank()),
            BYTEPS_LOCAL_SIZE=str(context.get_local_world_size()),
            BYTEPS_COLOCATED_SCHEDULER=str(int(rank == 0)),
        )
