"""Judges what was found: what to fix, what it means for training, and what mends it."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator

from tf_byteps.doctor.examination import HostRow, LinkRow, Report

# Of the median of all links, both directions: below, rounds wait for this link.
SLOW_LINK_SHARE = 0.5
# Logs and timelines of hosts can no longer be read side by side.
CLOCK_SECONDS = 1.0
# TensorFlow, its threads and the program's files, besides connections.
SPARE_DESCRIPTORS = 256
# NCCL and data loaders keep buffers there; Docker gives 64 MB.
LEAST_SHM_BYTES = 512 << 20
# TensorFlow alone takes about half of it.
LEAST_MEMORY_PER_WORKER = 1 << 30


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A sentence or two for the user.

    Attributes:
        where: a host, a link, or "all hosts".
        problem: what was found, and what it means for training.
        mend: what to do about it.
        is_note: it does no harm to training.
    """

    where: str
    problem: str
    mend: str
    is_note: bool = False


def judge(report: Report, connections_per_server: int, ports: int | None = None) -> list[Verdict]:
    """All verdicts on a report.

    Args:
        report: a `Report`.
        connections_per_server: the job's setting.
        ports: how many the job may use on each host; None: all.
    """
    workers = sum(row.slots for row in report.hosts)
    needed = 2 * workers * connections_per_server + SPARE_DESCRIPTORS
    found: list[Verdict] = []
    for row in report.hosts:
        found += _of_host(row, needed) if not row.error else [_unusable(row)]
    for name, count in report.ports.items():
        if ports is not None and count > ports:
            problem = f"a job with these workers listens at {count} ports, and --ports has {ports}"
            found.append(Verdict(name, problem, "allow more, as in --ports 20000-20063"))
    return [*found, *_versions(report.hosts), *_links(report.links)]


def _unusable(row: HostRow) -> Verdict:
    if row.is_unreachable:
        mend = f"make `ssh -o BatchMode=yes {row.name} true` work, without a password"
        return Verdict(row.name, f"{row.error}. No worker can start there", mend)
    mend = "install the same Python and tf_byteps there, at the same paths as here"
    return Verdict(row.name, f"tf_byteps does not run there: {row.error}", mend)


def _of_host(row: HostRow, descriptors: int) -> Iterator[Verdict]:
    facts, name = row.facts, row.name
    hard = facts["nofile_hard"]
    if hard is not None and hard < descriptors:
        yield Verdict(
            name,
            f"a process may open {hard} files, and this job needs up to {descriptors} in each: "
            "connections will be refused",
            f"raise the hard limit: `ulimit -Hn {descriptors}`, or nofile in "
            "/etc/security/limits.conf",
        )
    if row.slots > 1 and not facts["memory_transport"]:
        scope = facts["ptrace_scope"]
        mend = "`sysctl -w kernel.yama.ptrace_scope=0`"
        if not scope:
            mend = "start the container with `--cap-add SYS_PTRACE`"
        yield Verdict(
            name,
            f"processes may not read each other's memory (ptrace_scope is {scope}): workers of "
            "this host send tensors through sockets, with one more copy",
            mend,
        )
    if facts["processors"] < row.slots:
        yield Verdict(
            name,
            f"{row.slots} workers share {facts['processors']:g} processors: they wait for "
            "each other in every step",
            f"give it fewer workers, `-H {name}:{max(1, int(facts['processors']))}`, or more "
            "processors",
        )
    if facts["memory_bytes"] < row.slots * LEAST_MEMORY_PER_WORKER:
        yield Verdict(
            name,
            f"{row.slots} workers share {facts['memory_bytes'] / 1e9:.1f} GB of memory: the "
            "kernel may kill them",
            "start fewer workers there, or raise the container's memory limit",
        )
    yield from _shm_and_gpus(row)
    if facts["engine_error"]:
        mend = "run `make build` there, or install the wheel for its Python"
        yield Verdict(name, f"the engine cannot be loaded: {facts['engine_error']}", mend)
    if abs(row.clock_offset) - row.clock_error > CLOCK_SECONDS:
        yield Verdict(
            name,
            f"its clock is off by {row.clock_offset:+.1f} s: its logs and timeline do not match "
            "the others'",
            "`timedatectl set-ntp true`",
            is_note=True,
        )
    for sentence in facts["rdma_missing"]:
        mend = "`python -m tf_byteps.rdma` there says more"
        yield Verdict(name, f"RDMA cannot be used: {sentence}", mend, is_note=True)


def _shm_and_gpus(row: HostRow) -> Iterator[Verdict]:
    facts, gpus = row.facts, len(row.facts["gpus"])
    several = row.slots > 1 and gpus > 1
    size = facts["shm_bytes"] or 0
    if size < LEAST_SHM_BYTES:
        yield Verdict(
            row.name,
            f"/dev/shm has {size / 1e6:.0f} MB: NCCL and data loaders may fail there",
            "`mount -o remount,size=2G /dev/shm`, or `docker run --shm-size=2g`",
            is_note=not several,
        )
    if gpus and gpus < row.slots:
        yield Verdict(
            row.name,
            f"{row.slots} workers share {gpus} GPUs: TensorFlow takes all memory of a GPU",
            f"give it fewer workers, `-H {row.name}:{gpus}`, or set TF_FORCE_GPU_ALLOW_GROWTH=true",
        )
    if several and not facts["nccl"]:
        yield Verdict(
            row.name,
            "there is no NCCL: its GPUs sum gradients through the host's memory",
            "`pip install tensorflow[and-cuda]`",
        )


def _versions(rows: list[HostRow]) -> Iterator[Verdict]:
    for name in ("python", "tf_byteps", "tensorflow"):
        hosts: dict[str, list[str]] = {}
        for row in rows:
            if not row.error:
                hosts.setdefault(row.facts[name] or "none", []).append(row.name)
        if len(hosts) > 1:
            listed = "; ".join(f"{version} on {', '.join(on)}" for version, on in hosts.items())
            yield Verdict(
                "all hosts",
                f"versions of {name} differ ({listed}): the job is refused, or results differ",
                f"install the same version of {name} everywhere",
            )


def _links(links: list[LinkRow]) -> Iterator[Verdict]:
    rates = [link.values[key] for link in links if link.values for key in ("rate", "rate_back")]
    least = SLOW_LINK_SHARE * statistics.median(rates) if rates else 0.0
    for link in links:
        if not link.values:
            mend = "let the hosts of a job connect to each other on all TCP ports from 1024"
            yield Verdict(f"{link.source} to {link.target}", link.error, mend)
            continue
        ends = ((link.source, link.target, "rate"), (link.target, link.source, "rate_back"))
        for source, target, key in ends:
            if link.values[key] < least:
                yield Verdict(
                    f"{source} to {target}",
                    f"{link.values[key] / 1e6:.1f} MB/s, less than half of the median link's "
                    f"{least / SLOW_LINK_SHARE / 1e6:.1f} MB/s: all workers wait for it",
                    "check cable, switch port and `ethtool` there; --network-interface chooses "
                    "another network",
                )
