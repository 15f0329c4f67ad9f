"""What the engine is told: a process's settings and an address book, in the engine's own form."""

from __future__ import annotations

import importlib.util
import os
import typing
from collections.abc import Mapping

from tf_byteps import _engine
from tf_byteps.rendezvous.host import own_address, processors
from tf_byteps.rendezvous.secret import engine_key, job_secret

if typing.TYPE_CHECKING:
    from tf_byteps.config import Config
    from tf_byteps.rendezvous.messages import Book

_SPIN_MICROSECONDS = 20
_MOST_IO_THREADS = 4
OPTION_GROUPS = (
    "flow",
    "timeouts",
    "network",
    "security",
    "compression",
)  # of the engine's options


def engine_options(values: Mapping[str, float], config: Config) -> _engine.EngineOptions:
    """The engine's form of shared values, see `Config.shared_values`, and of this process's own."""
    options = _engine.EngineOptions()
    for name, value in values.items():
        if name not in ("backup_workers", "row_sum_workers"):  # are declared with each gradient
            setattr(_holder_of(options, name), name, value)
    network = options.network
    network.io_threads = config.io_threads or _default_io_threads(config)
    network.read_peer_memory = config.read_peer_memory
    network.transport = config.van
    network.ports = config.listening_ports
    network.rdma = _rdma_options(config)
    options.compression.narrow = config.narrow
    options.security.secret = engine_key(job_secret(config))
    options.nccl_libraries = nccl_libraries()
    return options


def _holder_of(options: _engine.EngineOptions, name: str) -> object:
    """The part of the options that has one of this name; the engine names each but once."""
    groups = (
        options.flow,
        options.timeouts,
        options.network,
        options.security,
        options.compression,
    )
    return next((group for group in groups if hasattr(group, name)), options)


def _rdma_options(config: Config) -> _engine.RdmaOptions:
    options = _engine.RdmaOptions()
    options.devices = config.rdma_devices or ""
    options.address = own_address(config) if config.van != "tcp" else ""
    options.gid_index = -1 if config.rdma_gid_index is None else config.rdma_gid_index
    options.traffic_class = config.rdma_traffic_class
    options.service_level = config.rdma_service_level
    spin = config.rdma_spin_microseconds
    if spin is None:
        spin = 0 if _few_processors() else _SPIN_MICROSECONDS
    options.spin = spin * 1e-6
    return options


def _few_processors() -> bool:
    return processors() < 4


def _default_io_threads(config: Config) -> int:
    """More threads than processors take turns with each other and with the computation."""
    if _few_processors():
        return 1
    return min(_MOST_IO_THREADS, max(2, processors() // (8 * config.local_size)))


def job_description(book: Book, config: Config) -> _engine.JobDescription:
    """The engine's form of an address book."""
    job = _engine.JobDescription()
    job.job_id = book.job_id
    job.epoch = book.epoch
    job.worker_hosts = book.worker_hosts
    job.server_hosts = book.server_hosts
    job.server_workers = book.server_workers
    job.gpus_share_hosts = book.gpus_share_hosts
    job.server_endpoints = [_engine.Endpoint(a.host, a.port) for a in book.server_endpoints]
    if book.coordinator_endpoint is not None:
        address = book.coordinator_endpoint
        job.coordinator_endpoint = _engine.Endpoint(address.host, address.port)
    job.options = engine_options(book.options, config)
    return job


def nccl_libraries() -> list[str]:
    """Names to open NCCL by, in turn: what is loaded or on the path, then what pip installed."""
    names = ["libnccl.so.2"]
    try:
        package = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        package = None
    for folder in package.submodule_search_locations if package else []:
        names.append(os.path.join(folder, "lib", names[0]))
    return names
