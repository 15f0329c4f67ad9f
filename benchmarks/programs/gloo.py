"""A worker of PyTorch's Gloo process group."""

import time

import torch
import torch.distributed

_tensors = {}


def join():
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    return [torch.distributed.get_rank(), torch.distributed.get_world_size()]


def leave():
    torch.distributed.destroy_process_group()


def prepare(group, elements):
    _tensors[group] = torch.ones(elements)


def exchange(group):
    """One all-reduce in place; [begin, end] on the clock of all processes."""
    torch.distributed.barrier()
    begin = time.monotonic()
    torch.distributed.all_reduce(_tensors[group])
    end = time.monotonic()
    _tensors[group].fill_(1)
    return [begin, end]


def latency(group, count):
    """Seconds of each of `count` all-reduces, one after the other."""
    torch.distributed.barrier()
    seconds = []
    for _ in range(count):
        begin = time.perf_counter()
        torch.distributed.all_reduce(_tensors[group])
        seconds.append(time.perf_counter() - begin)
    return seconds
