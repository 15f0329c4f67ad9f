"""A Ray cluster of one raylet, and the program that starts a job on it.

python -m benchmarks.programs.first_step_on_ray serve|launch|bare WORKERS [FOLDER STEP]
"""

import pathlib
import sys
import time

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


def bare(workers, folder, _):
    """Starts so many actors that do nothing: what Ray itself takes."""
    import ray

    @ray.remote(num_cpus=1)
    class Actor:
        def take(self, rank):
            (pathlib.Path(folder) / str(rank)).write_text(str(time.monotonic()))

    ray.init(log_to_driver=False)
    actors = [Actor.remote() for _ in range(int(workers))]
    ray.get([actor.take.remote(rank) for rank, actor in enumerate(actors)])


if __name__ == "__main__":
    {"serve": serve, "launch": launch, "bare": bare}[sys.argv[1]](*sys.argv[2:])
