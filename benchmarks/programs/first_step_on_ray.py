"""A Ray cluster of one raylet, and the program that starts a job on it.

python -m benchmarks.programs.first_step_on_ray serve WORKERS, or launch WORKERS FOLDER STEP
"""

import sys

from benchmarks.programs.first_step import take


def serve(workers):
    """Starts the cluster, prints its address, and ends it with standard input."""
    from ray.cluster_utils import Cluster

    arguments = {"num_cpus": int(workers), "object_store_memory": 80 << 20}
    running = Cluster(True, head_node_args={**arguments, "include_dashboard": False})
    print(running.address, flush=True)
    sys.stdin.read()
    running.shutdown()


def launch(workers, folder, step):
    """Starts a job on the cluster of RAY_ADDRESS."""
    import ray

    from tf_byteps.ray import RayLauncher

    ray.init(log_to_driver=False)
    RayLauncher(workers=int(workers)).run(take, args=[folder, step])


if __name__ == "__main__":
    {"serve": serve, "launch": launch}[sys.argv[1]](*sys.argv[2:])
