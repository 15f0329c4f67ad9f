"""pyverbs, whichever of its generations is installed.

It has to match the rdma-core that is installed, as Debian's `python3-pyverbs` does; a package of
PyPI that has its name does not on most systems. Version 44 keeps the enumerations in
`pyverbs.enums`, version 59 in `pyverbs.libibverbs_enums`.
"""

import importlib
import importlib.util
import pathlib
import sys
from typing import Any

from tf_byteps.errors import BytePSError

# Debian's packages are for the system's Python, which a virtual environment does not look at.
_DEBIAN = pathlib.Path("/usr/lib/python3/dist-packages/pyverbs/__init__.py")


class Verbs:
    """The modules and enumerations of pyverbs.

    Attributes:
        enums: the module that has IBV_WC_SUCCESS and all others.
        generation: "pyverbs.enums" or "pyverbs.libibverbs_enums".
    """

    def __init__(self) -> None:
        names = ("addr", "cq", "device", "mr", "pd", "qp", "wr", "pyverbs_error")
        try:
            _find_pyverbs()
            for name in names:
                setattr(self, name, importlib.import_module(f"pyverbs.{name}"))
            self.enums = _enums()
        except ImportError as error:
            raise BytePSError(
                f"pyverbs cannot be used ({error}); on Debian and Ubuntu: apt-get install "
                f"python3-pyverbs, for the system's version of Python (this one is "
                f"{sys.version_info[0]}.{sys.version_info[1]})"
            ) from error
        self.generation = self.enums.__name__


def get_device_list() -> list[Any]:
    """The RDMA devices of this machine, by pyverbs.

    Returns:
        A list of names, such as `["mlx5_0"]`; empty if the kernel has RDMA and no device.

    Raises:
        BytePSError: pyverbs is missing, or the kernel has no RDMA.
    """
    verbs: Any = Verbs()
    try:
        devices = verbs.device.get_device_list()
    except verbs.pyverbs_error.PyverbsError as error:
        raise BytePSError(
            f"this system has no RDMA support ({error}); python -m tf_byteps.rdma says what is "
            f"missing"
        ) from error
    return [device.name.decode() for device in devices]


def _find_pyverbs() -> None:
    """Makes Debian's pyverbs importable, and nothing else of the system's Python."""
    if importlib.util.find_spec("pyverbs") is not None or not _DEBIAN.exists():
        return
    spec = importlib.util.spec_from_file_location(
        "pyverbs", _DEBIAN, submodule_search_locations=[str(_DEBIAN.parent)]
    )
    assert spec is not None and spec.loader is not None  # of a file that exists
    module = importlib.util.module_from_spec(spec)
    sys.modules["pyverbs"] = module
    spec.loader.exec_module(module)


def _enums() -> Any:
    for name in ("pyverbs.enums", "pyverbs.libibverbs_enums"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise ImportError("it has neither pyverbs.enums nor pyverbs.libibverbs_enums")
