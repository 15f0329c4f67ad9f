"""Which GPU each worker of a machine gets, and the processors beside it."""

import os
import pathlib
import re
from collections.abc import Callable, Mapping

_DEVICE_FILE = re.compile(r"nvidia\d+")


def visible_gpus(environment: Mapping[str, str], device_folder: str = "/dev") -> list[str]:
    """The GPUs that a program with this environment would use, as CUDA_VISIBLE_DEVICES names them.

    Args:
        environment: a mapping of variables.
        device_folder: where the driver's device files are. A container has those of its GPUs, and
            CUDA numbers them from 0.

    Returns:
        A list of strings; empty without a GPU.
    """
    given = environment.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return [str(number) for number in range(_count(device_folder))]
    names = []
    for name in given.split(","):
        if not name.strip() or name.strip().startswith("-"):
            break  # CUDA ignores what follows, too
        names.append(name.strip())
    return names


def own_gpu(environment: Mapping[str, str], device_folder: str = "/dev") -> str | None:
    """The GPU that a worker with this environment computes on.

    Args:
        environment: a mapping of variables.
        device_folder: see `visible_gpus`.

    Returns:
        A string as in CUDA_VISIBLE_DEVICES: the first of those that are visible. None without one.
    """
    gpus = visible_gpus(environment, device_folder) if _count(device_folder) else []
    return gpus[0] if gpus else None


def devices_in_words(environment: Mapping[str, str], device_folder: str = "/dev") -> str:
    """What workers of this machine compute on: "CPU", "1 GPU" or "4 GPUs"."""
    gpus = len(visible_gpus(environment, device_folder)) if _count(device_folder) else 0
    return f"{gpus} GPU{'' if gpus == 1 else 's'}" if gpus else "CPU"


def assigned_gpu(
    environment: Mapping[str, str], device_folder: str = "/dev"
) -> tuple[dict[str, str], str]:
    """One GPU for each worker of a machine, in the order of their local ranks.

    Args:
        environment: the variables of a process that bpslaunch starts.
        device_folder: see `visible_gpus`.

    Returns:
        A pair: the variables to set, as a dict; and a sentence for the user, or "". Nothing is set
        for servers, for the scheduler, and without a GPU.
    """
    if environment.get("DMLC_ROLE") != "worker" or "BYTEPS_LOCAL_RANK" not in environment:
        return {}, ""
    gpus = visible_gpus(environment, device_folder)
    if not gpus:
        return {}, ""
    local_rank = int(environment["BYTEPS_LOCAL_RANK"])
    local_size = int(environment.get("BYTEPS_LOCAL_SIZE", "1"))
    remark = ""
    if not _count(device_folder):
        if local_rank == 0:
            remark = (
                f"WARNING CUDA_VISIBLE_DEVICES is {','.join(gpus)}, but this machine has no GPU "
                f"(there is no {device_folder}/nvidia0): its workers train on the CPU"
            )
    elif local_size > len(gpus) and local_rank == 0:
        remark = (
            f"{local_size} workers share {len(gpus)} GPU(s): they need "
            f"TF_FORCE_GPU_ALLOW_GROWTH=true, because TensorFlow takes all of a GPU's memory; or "
            f"start fewer workers on this machine"
        )
    return {"CUDA_VISIBLE_DEVICES": gpus[local_rank % len(gpus)]}, remark


def beside_gpu(
    name: str,
    find_program: Callable[[str], str | None],
    driver_folder: str = "/proc/driver/nvidia/gpus",
    pci_folder: str = "/sys/bus/pci/devices",
) -> list[str]:
    """What to put in front of a command so that it runs on the processors beside a GPU.

    Copies between a GPU and memory of the other processors' go through the link between them, which
    all GPUs share.

    Args:
        name: the GPU as CUDA_VISIBLE_DEVICES names it.
        find_program: `shutil.which`.
        driver_folder: where NVIDIA's driver describes its GPUs, by PCI address.
        pci_folder: where the kernel describes PCI devices.

    Returns:
        A list of arguments; empty without numactl, and where the machine says nothing of it.
    """
    numactl = find_program("numactl")
    address = _pci_address(name, pathlib.Path(driver_folder))
    if numactl is None or address is None:
        return []
    try:
        node = int((pathlib.Path(pci_folder) / address / "numa_node").read_text())
    except (OSError, ValueError):
        return []
    # Memory of other nodes is better than none.
    return [numactl, f"--cpunodebind={node}", f"--preferred={node}", "--"] if node >= 0 else []


def _pci_address(name: str, driver_folder: pathlib.Path) -> str | None:
    """The PCI address of a GPU; CUDA numbers equal GPUs in the order of their addresses."""
    folders = sorted(driver_folder.iterdir()) if driver_folder.is_dir() else []
    if name.isdecimal():
        return folders[int(name)].name.lower() if int(name) < len(folders) else None
    for folder in folders:
        if name.startswith("GPU-") and name in (folder / "information").read_text():
            return folder.name.lower()
    return None


def _count(device_folder: str) -> int:
    return sum(1 for name in os.listdir(device_folder) if _DEVICE_FILE.fullmatch(name))
