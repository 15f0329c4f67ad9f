"""What a machine has for RDMA, read from the kernel's files, so that it works without pyverbs."""

import ctypes
import pathlib
import resource
from typing import Any

_CLASS = pathlib.Path("/sys/class/infiniband")
_NEEDED_MEMORY = 64 << 20  # for a few connections
_NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


def devices(root: Any = _CLASS) -> dict[Any, Any]:
    """The RDMA devices and their ports.

    Args:
        root: the kernel's folder.

    Returns:
        A dict of a list of ports for each device's name; a port is a dict with "port", "state",
        "rate", "link_layer", "interfaces" and "gids" (a list of index, GID and type).
    """
    return {device.name: _ports(device) for device in sorted(root.glob("*"))}


def _ports(device: Any) -> Any:
    ports = []
    for folder in sorted((device / "ports").glob("*"), key=lambda path: int(path.name)):
        gids, interfaces = [], []
        for file in sorted((folder / "gids").glob("*"), key=lambda path: int(path.name)):
            gid = _read(file)
            if gid in ("", _NO_GID):
                continue
            gids.append(
                (int(file.name), gid, _read(folder / "gid_attrs" / "types" / file.name) or "IB")
            )
            interface = _read(folder / "gid_attrs" / "ndevs" / file.name)
            if interface and interface not in interfaces:
                interfaces.append(interface)
        ports.append(
            {
                "port": int(folder.name),
                "state": _read(folder / "state").partition(": ")[2],
                "rate": _read(folder / "rate"),
                "link_layer": _read(folder / "link_layer"),
                "interfaces": interfaces,
                "gids": gids,
            }
        )
    return ports


def missing(root: Any = _CLASS) -> Any:
    """What this machine lacks.

    Args:
        root: the kernel's folder.

    Returns:
        A list of sentences, each with what to do; empty if RDMA can be used.
    """
    lacking = []
    try:
        ctypes.CDLL("libibverbs.so.1")
    except OSError as error:
        lacking.append(
            f"rdma-core is not installed ({error}). On Debian and Ubuntu: apt-get install "
            f"rdma-core libibverbs1 ibverbs-providers"
        )
    found = devices(root)
    if not root.exists():
        lacking.append(
            "The kernel has no RDMA support loaded (there is no /sys/class/infiniband). Load the "
            "card's driver (for example modprobe mlx5_ib), or, without a card, Soft-RoCE: modprobe "
            "rdma_rxe; rdma link add rxe0 type rxe netdev eth0"
        )
    elif not found:
        lacking.append("The kernel knows of no RDMA device. Is the card's driver loaded?")
    elif not pathlib.Path("/dev/infiniband").exists():
        lacking.append(
            "There is no /dev/infiniband: load ib_uverbs, or give the container the devices "
            "(docker run --device /dev/infiniband)"
        )
    if found and not any(p["state"] == "ACTIVE" for ports in found.values() for p in ports):
        lacking.append("No port is active: check the cable, and ip link")
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit != resource.RLIM_INFINITY and limit < _NEEDED_MEMORY:
        lacking.append(
            f"Only {limit >> 10} KB of memory may be locked, about 9 MB for each connection are "
            f"needed: ulimit -l unlimited (docs/rdma.md says where to set it)"
        )
    return lacking


def text() -> Any:
    """All of it in words.

    Returns:
        A string of several lines.
    """
    lines = []
    for name, ports in devices().items():
        for port in ports:
            interfaces = ", ".join(port["interfaces"])
            lines.append(
                f"{name} port {port['port']}: {port['state']}, {port['rate']}, "
                f"{port['link_layer']}" + (f" ({interfaces}, {_mtu(port)})" if interfaces else "")
            )
            lines += [f"  GID {index}: {gid}  {kind}" for index, gid, kind in port["gids"]]
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    unlimited = limit == resource.RLIM_INFINITY
    lines.append("memory that may be locked: " + ("all" if unlimited else f"{limit >> 10} KB"))
    lacking = missing()
    lines += ["missing: " + sentence for sentence in lacking]
    lines.append("RDMA can be used" if not lacking else "RDMA cannot be used")
    return "\n".join(lines)


def _mtu(port: dict[str, Any]) -> str:
    sizes = {_read(pathlib.Path("/sys/class/net") / name / "mtu") for name in port["interfaces"]}
    return "MTU " + "/".join(sorted(sizes))


def _read(path: Any) -> Any:
    try:
        return path.read_text().strip()
    except OSError:  # an entry of a table that is not in use
        return ""
