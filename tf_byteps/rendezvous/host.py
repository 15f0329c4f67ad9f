"""Which machine a process is on, and at which address others reach it."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
import typing

from tf_byteps.errors import ConfigError

if typing.TYPE_CHECKING:
    from tf_byteps.config import Config

_GET_INTERFACE_ADDRESS = 0x8915  # SIOCGIFADDR
_DISCARD_PORT = 9
ALL_INTERFACES = "0.0.0.0"


def host_id(config: Config) -> str:
    """Identifies this machine: equal texts mean "same host" (protocol rule 17).

    Host names do not: containers share them, or have several. Two processes can share memory when
    they run under one kernel boot, and reach each other's sockets in one network namespace.
    """
    if config.host_id:
        return config.host_id
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot_id = file.read().strip()
        return f"{boot_id}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:  # sandboxes without /proc
        return socket.gethostname()


def processors() -> int:
    """How many processors of this machine the process may use."""
    return len(os.sched_getaffinity(0))


def own_address(config: Config) -> str:
    """The address that this process gives to others: configured, or the one towards the scheduler.

    Raises:
        ConfigError: the configured interface has no address.
    """
    if config.node_host:
        return config.node_host
    if config.interface:
        return interface_address(config.interface)
    if config.scheduler_host is None:  # a job inside this process
        return "127.0.0.1"
    return route_address(config.scheduler_host)


def route_address(host: str) -> str:
    """The local address from which packets to `host` leave; `host` itself if there is no route."""
    try:
        family, _, _, _, target = socket.getaddrinfo(host, _DISCARD_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)  # sends nothing
            return probe.getsockname()[0]
    except OSError:
        return host


def listening_address(config: Config, host: str) -> str:
    """Where to listen so that others reach this process at `host`: a numeric address.

    If the name does not say it: the configured interface's, or else that of all interfaces.

    Raises:
        ConfigError: other machines reach it, and the job neither has a secret nor may do without.
    """
    address = bindable_address(host, here_only=config.on_one_machine)
    if address == ALL_INTERFACES and config.interface:
        address = interface_address(config.interface)
    if not (config.has_secret or config.allow_open or ipaddress.ip_address(address).is_loopback):
        where = host if address == host else f"{host}, that is at {address}"
        raise ConfigError(
            f"this {config.role} is to listen at {where}, where other machines reach it, and the "
            f"job has no secret: everybody there could take part in it, read its weights and end "
            f"it. Start the job with bpslaunch, call tf_byteps.ray.setup() in Ray Train, or give "
            f"all its processes one secret (openssl rand -hex 32 > job.secret, and "
            f"BYTEPS_JOB_SECRET_FILE=job.secret); BYTEPS_ALLOW_OPEN=1 goes on without one. See "
            f"docs/security.md"
        )
    return address


def bindable_address(host: str, here_only: bool = False) -> str:
    """Where to listen so that others reach this process at `host`: a numeric address.

    That is "0.0.0.0", all interfaces, when `host` is a name that does not say it: Debian lets a
    machine's own name stand for 127.0.1.1 on that machine only, and a Kubernetes service has an
    address that no socket can be bound to.

    Args:
        host: a name or an address.
        here_only: the others are all on this machine, where a name means to them what it means
            here.
    """
    for address in numeric_addresses(host):
        is_loopback = ipaddress.ip_address(address).is_loopback
        if is_loopback and not here_only and host not in (address, "localhost"):
            continue
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((address, 0))
                return address
            except OSError:
                continue
    return ALL_INTERFACES


def numeric_addresses(host: str) -> list[str]:
    """What a name stands for here, IPv4 first; empty if it is not known."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return []
    return sorted({str(target[0]) for *_, target in found}, key=lambda address: ":" in address)


def interface_address(name: str) -> str:
    """The IPv4 address of one of this machine's network interfaces.

    Raises:
        ConfigError: there is no such interface, or it has none.
    """
    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _GET_INTERFACE_ADDRESS, request)
        except OSError as error:
            names = ", ".join(name for _, name in socket.if_nameindex())
            raise ConfigError(
                f"DMLC_INTERFACE is {name!r}, but that interface has no IPv4 address "
                f"({error.strerror}); this machine has {names}"
            ) from None
    return socket.inet_ntoa(answer[20:24])
