"""Does registering memory with NCCL make all-reduces between the GPUs of one host faster?

    python -m benchmarks.gpu.registered
    python -m benchmarks.gpu.registered --gpus 4 --megabytes 16 256 --apart --json registered.json

Each GPU has its own process, as in a job of tf_byteps. The processes add float32 numbers in memory
from cudaMalloc and from ncclMemAlloc, each plain and registered (ncclCommRegister). All kinds take
turns in each round. The "grouped" rows add 16 buffers of a 16th of the size in one group of calls,
as the engine does with gradients that are ready together. A time is that of the slowest GPU: CUDA
events around ten calls, divided by ten. Small sizes include what it costs the CPU to launch the
calls. The sums are checked for each kind and size.

NCCL's user guide says, under "User Buffer Registration":

* NCCL works on registered memory directly, without a copy through its own buffers.
* If one rank passes registered memory to a call, all ranks must. Here all ranks register buffers of
  the same sizes in the same order.
* Between the GPUs of a host, NCCL 2.23 and later use registered memory. It should come from
  ncclMemAlloc or CUDA's virtual memory functions.
* Registered memory from cudaMalloc can make NCCL hang or crash, so NCCL ignores it by default.
  NCCL_LEGACY_CUDA_REGISTER=1 allows it. This program sets that variable in its processes.

NCCL's sources leave out some all-reduces, which the guide does not mention (ncclRegisterCollBuffers
in src/register/coll_reg.cc). Sums in place with rings or trees never use a registration. Nor do
sums with another protocol than "Simple", such as short ones. So --apart, which puts the sums into
other buffers, may show a gain where sums in place show none.

NVLink multicast (NVLS) is off, as in all benchmarks of GPUs: it puts the GPUs of a shared host at
risk. With multicast, registration could gain more. NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=REG,TUNING
shows which buffers NCCL registers and which algorithms it uses, but makes the calls slower.

Needs GPUs, libcuda.so.1, libcudart, and NCCL 2.19 or later. The libraries must be in a folder of
LD_LIBRARY_PATH, or be those that pip has installed. When a process fails, or does not answer within
120 seconds, all of them end.
"""

import argparse
import functools
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import signal
import sys
import time
import traceback

from benchmarks.gpu.nccl_rank import FLOAT_BYTES, Kind, Rank
from benchmarks.measure import interleaved, ratios, shown
from benchmarks.sessions import BenchmarkError
from tf_byteps.launch.guard import die_with

_PATIENCE_SECONDS = 120
_END_SECONDS = 10
_GROUPED = 16
_MEGABYTE = 1 << 20
_SETTINGS = {"NCCL_LEGACY_CUDA_REGISTER": "1", "NCCL_NVLS_ENABLE": "0"}
_KINDS = (
    Kind("cudaMalloc", False),
    Kind("cudaMalloc", True),
    Kind("ncclMemAlloc", False),
    Kind("ncclMemAlloc", True),
    Kind("cudaMalloc", False, _GROUPED),
    Kind("cudaMalloc", True, _GROUPED),
)


def _serve(connection, parent, rank, ranks):
    """In a rank's process: calls the methods that the parent names, until it hangs up."""
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    os.environ.update(_SETTINGS)  # before NCCL is loaded
    served = Rank(rank, ranks)
    # The parent, which waits for the other ranks, should notice first.
    while connection.poll(_PATIENCE_SECONDS + _END_SECONDS):
        try:
            name, arguments = connection.recv()
        except EOFError:
            return
        result = error = None
        try:
            result = getattr(served, name)(*arguments)
        except BenchmarkError as failure:
            error = str(failure)
        except Exception:
            error = traceback.format_exc()
        connection.send((result, error))
    sys.exit(f"benchmarks.gpu.registered: rank {rank} has waited too long for the others")


class _Ranks:
    """The processes, one for each GPU. Use as a context manager: none is left at its end."""

    def __init__(self, ranks):
        context = multiprocessing.get_context("spawn")
        self._connections, self._processes = [], []
        for rank in range(ranks):
            here, there = context.Pipe()
            arguments = (there, os.getpid(), rank, ranks)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            there.close()
            self._connections.append(here)
            self._processes.append(process)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for connection, process in zip(self._connections, self._processes, strict=True):
            connection.close()
            if kind is not None:
                process.kill()
        for process in self._processes:
            process.join(_END_SECONDS)
            process.kill()
            process.join(_END_SECONDS)

    def call(self, name, *arguments):
        """Calls a method in all ranks at once; returns the results by rank.

        Raises:
            BenchmarkError: it failed in a rank, a rank has ended, or one did not answer in time.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for rank, connection in enumerate(self._connections):
            try:
                connection.send((name, arguments))
            except OSError:
                self._raise_ended(rank, name)
        waiting = {connection: rank for rank, connection in enumerate(self._connections)}
        results = {}
        while waiting:
            left = max(0, deadline - time.monotonic())
            ready = multiprocessing.connection.wait(list(waiting), left)
            if not ready:
                late = ", ".join(map(str, waiting.values()))
                raise BenchmarkError(f"{name}: no answer of {late} in {_PATIENCE_SECONDS} s")
            for connection in ready:
                rank = waiting.pop(connection)
                try:
                    results[rank], error = connection.recv()
                except (EOFError, OSError):
                    self._raise_ended(rank, name)
                if error is not None:
                    raise BenchmarkError(f"{name}, rank {rank}: {error}")
        return [results[rank] for rank in sorted(results)]

    def _raise_ended(self, rank, name):
        process = self._processes[rank]
        process.join(_END_SECONDS)
        raise BenchmarkError(f"{name}: rank {rank} has ended with exit code {process.exitcode}")


def _start(ranks, options):
    """Connects the ranks and makes their memory; returns what there is, for the table's head."""
    opened = ranks.call("open")
    names, (_, version, path) = {name for name, _, _ in opened}, opened[0]
    ranks.call("connect", ranks.call("unique_id")[0])
    most = max(options.megabytes) * _MEGABYTE // FLOAT_BYTES
    ranks.call("allocate", _KINDS, most, options.apart)
    return {
        "gpus": options.gpus,
        "gpu": ", ".join(sorted(names)),
        "nccl": f"{version // 10000}.{version // 100 % 100}.{version % 100}",
        "library": path,
        "apart": options.apart,
    }


def _measure(ranks, megabytes, options):
    """Prints the rows of a size and returns them."""
    elements = megabytes * _MEGABYTE // FLOAT_BYTES

    def slowest(kind):
        return max(ranks.call("measure", kind, elements))

    for kind in _KINDS:
        ranks.call("check", kind, elements)
        slowest(kind)  # NCCL does some work only at the first calls
    competitors = {kind: functools.partial(slowest, kind) for kind in _KINDS}
    runs = interleaved(options.rounds, "ms", competitors)
    # What each GPU sends, if no GPU sends more than it must.
    sent = megabytes * _MEGABYTE * 2 * (options.gpus - 1) / options.gpus
    rows = []
    for kind, times in runs.items():
        speeds = times.map(lambda ms: sent / ms * 1e-6, "GB/s")
        ratio = ratios(times, runs[kind.plain]) if kind.registered else None
        line = f"{megabytes:5} MB  {kind!s:40} {times!s:32} {shown(speeds.median):>9}"
        print(f"{line}  {ratio}" if ratio else line, flush=True)
        row = {"megabytes": megabytes, "kind": str(kind), "ms": times.as_json()}
        row |= {"bus_bandwidth": speeds.as_json(), "registered_to_plain": ratio and ratio.as_json()}
        rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.registered",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--gpus", type=int, default=2, help="of this host, at least 2")
    parser.add_argument(
        "--megabytes",
        type=int,
        nargs="+",
        default=[1, 4, 16, 64, 256],
        help="of a call, each of 2^20 bytes",
    )
    parser.add_argument("--rounds", type=int, default=11, help="batches of each kind and size")
    parser.add_argument("--apart", action="store_true", help="sums go to other buffers")
    parser.add_argument("--json", type=pathlib.Path, help="where to write the rows")
    options = parser.parse_args()
    if options.gpus < 2 or options.rounds < 1 or min(options.megabytes) < 1:
        parser.error("needs at least 2 GPUs, 1 round and 1 MB")
    rows = []
    try:
        with _Ranks(options.gpus) as ranks:
            about = _start(ranks, options)
            print(f"{about['gpus']} × {about['gpu']}, NCCL {about['nccl']} ({about['library']})")
            print(f"sums {'apart' if options.apart else 'in place'}, {options.rounds} rounds\n")
            print(f"{'':10}{'memory':40} {'one call':32} {'bus GB/s':>9}  registered / plain")
            for megabytes in options.megabytes:
                rows += _measure(ranks, megabytes, options)
                if options.json:
                    options.json.write_text(json.dumps({**about, "rows": rows}, indent=1))
            ranks.call("deregister")
            ranks.call("leave")
    except BenchmarkError as error:
        sys.exit(f"benchmarks.gpu.registered: {error}")


if __name__ == "__main__":
    main()
