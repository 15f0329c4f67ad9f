"""`bpslaunch plan`: what a training will need, from the number of its parameters."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence

from tf_byteps.launch.hosts import given_hosts

# Variables that an optimizer has for each parameter, by its name in Keras.
_SLOTS = {
    "sgd": 0,
    "momentum": 1,
    "rmsprop": 1,
    "adagrad": 1,
    "lion": 1,
    "adam": 2,
    "adamw": 2,
    "nadam": 2,
    "adamax": 2,
    "adadelta": 2,
    "ftrl": 2,
    "lamb": 2,
}
# Bytes of a parameter, and so of its gradient, by the name of a policy of Keras.
_BYTES = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "mixed_float16": 4,
    "mixed_bfloat16": 4,
    "float64": 8,
}
_COUNT = re.compile(r"(\d+(?:\.\d+)?) *([kKmMbBgG]?)")
_FACTORS = {"": 1, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9}
_DESCRIPTION = """\
Prints what a training will need: memory of workers and servers, and bytes that
they send in a step.

    bpslaunch plan --parameters 110M --optimizer adam -np 4 --servers 2

It starts nothing. For a Keras model the number is model.count_params().
Activations are not counted: they are those of one process with a worker's part
of the batch.
"""


def main(words: Sequence[str]) -> int:
    """Runs the command; returns its exit code.

    Args:
        words: those after "plan".
    """
    parser = argparse.ArgumentParser(
        prog="bpslaunch plan",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--parameters", type=_count, required=True, metavar="N", help="such as 110M or 1.5B"
    )
    parser.add_argument(
        "--optimizer",
        type=str.lower,
        choices=_SLOTS,
        default="adam",
        metavar="NAME",
        help="Keras's name for it (default: adam)",
    )
    parser.add_argument(
        "--dtype",
        choices=_BYTES,
        default="float32",
        metavar="POLICY",
        help=f"{', '.join(_BYTES)} (default: float32)",
    )
    parser.add_argument("-np", "--np", "--workers", dest="workers", type=_positive, metavar="N")
    parser.add_argument("--servers", type=int, default=0, metavar="K")
    parser.add_argument("-H", "--hosts", metavar="HOST[:N],...")
    parser.add_argument("--hostfile", metavar="FILE")
    parser.add_argument(
        "--gigabits", type=float, metavar="G", help="of each host's link, to estimate a step"
    )
    options = parser.parse_args(words)
    hosts = given_hosts(options.hosts, options.hostfile) or []
    workers = options.workers or sum(host.slots for host in hosts) or 1
    if options.servers < 0:
        parser.error("--servers must not be negative")
    if options.gigabits is not None and not options.gigabits > 0:
        parser.error("--gigabits must be more than 0")
    for line in described(
        options.parameters,
        options.optimizer,
        options.dtype,
        workers,
        options.servers,
        options.gigabits,
    ):
        print(line)
    return 0


def described(
    parameters: int,
    optimizer: str,
    dtype: str,
    workers: int,
    servers: int,
    gigabits: float | None = None,
) -> Iterator[str]:
    """What a training needs, in lines.

    Args:
        parameters: their number; all are trained.
        optimizer: its name in Keras, in small letters.
        dtype: the name of a policy.
        workers: how many.
        servers: how many processes; 0: every worker hosts one.
        gigabits: per second, of each host's link.
    """
    size = parameters * _BYTES[dtype]
    slots = _SLOTS[optimizer] * size
    number = f"{_short(parameters)} parameters ({dtype}), {optimizer}"
    if workers == 1:
        yield f"{number}, 1 worker: nothing is sent"
        yield f"memory of the worker     {_in_bytes(2 * size + slots)} {_parts(size, slots)}"
        return
    where = f"{servers} server{'s' * (servers > 1)}" if servers else "servers inside the workers"
    yield f"{number}, {workers} workers, {where}"
    # A server has the sums that are made and those of the round before, which are still asked for.
    of_server = 2 * size // (servers or workers)
    hosted = 0 if servers else of_server
    total = 3 * size + slots + hosted
    more = f", {_in_bytes(hosted)} its server" if hosted else ""
    yield (
        f"memory of a worker       {_in_bytes(total)} "
        f"{_parts(size, slots)[:-1]}, {_in_bytes(size)} sums{more})"
    )
    if servers:
        yield f"memory of a server       up to {_in_bytes(of_server)}"
        sent = size
        by_server = workers * size // servers
        yield f"sent by a worker         {_in_bytes(sent)} in a step; it receives as much"
        yield f"sent by a server         {_in_bytes(by_server)} in a step; it receives as much"
        busiest = max(sent, by_server)
    else:
        busiest = 2 * size * (workers - 1) // workers
        yield f"sent by a worker         {_in_bytes(busiest)} in a step; it receives as much"
    if gigabits:
        seconds = busiest * 8 / (gigabits * 1e9)
        yield (
            f"time to send             {seconds * 1e3:.0f} ms in a step at {gigabits:g} Gbit/s, "
            "each process on a host of its own; much of it beside backpropagation"
        )
    yield "Add the activations, and some 0.5 GB for TensorFlow. On one host nothing leaves it."


def _parts(size: int, slots: int) -> str:
    optimizer = f", {_in_bytes(slots)} optimizer" if slots else ""
    return f"({_in_bytes(size)} weights, {_in_bytes(size)} gradients{optimizer})"


def _count(text: str) -> int:
    found = _COUNT.fullmatch(text)
    number = round(float(found[1]) * _FACTORS[found[2].lower()]) if found else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number such as 25600000, 110M or 1.5B")
    return number


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _short(number: float) -> str:
    for unit, factor in (("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if number >= factor:
            return f"{number / factor:.3g}{unit}"
    return str(number)


def _in_bytes(number: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if number >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number / 1e3:.3g} KB"
