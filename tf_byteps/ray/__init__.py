"""Jobs on a Ray cluster: a launcher of its own, and what programs inside Ray Train need.

`RayLauncher` starts workers and servers on a placement group. A program that one of Ray Train's
trainers starts calls `setup`.
"""

try:
    import ray as _ray
except ModuleNotFoundError as _error:
    if _error.name != "ray":
        raise
    raise ImportError(
        "tf_byteps.ray needs Ray, which is not installed here: run pip install '.[ray]' in the "
        "sources of tf_byteps"
    ) from None
if not hasattr(_ray, "__version__"):  # a folder of that name, which is not a package
    raise ImportError(
        f"tf_byteps.ray needs Ray, but 'import ray' finds {list(_ray.__path__)}: rename that "
        f"folder, and run pip install '.[ray]' in the sources of tf_byteps"
    )

from tf_byteps.ray.launcher import RayLauncher  # noqa: E402
from tf_byteps.ray.train import setup  # noqa: E402

__all__ = ["RayLauncher", "setup"]
