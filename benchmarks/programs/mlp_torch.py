"""A PyTorch worker that trains the multi-layer perceptron with DistributedDataParallel."""

import time

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

from benchmarks.programs import mlp_values

_state = {}


def join(threads=1):
    torch.set_num_threads(threads)
    torch.distributed.init_process_group("gloo")
    return torch.distributed.get_world_size()


def build(width, layers, batch, rank):
    """Makes the model and this worker's batch."""
    values = mlp_values.weights(width, layers)
    modules = []
    for layer in range(layers):
        linear = torch.nn.Linear(width, width)
        linear.weight.data = torch.from_numpy(values[2 * layer].T.copy())
        linear.bias.data = torch.from_numpy(values[2 * layer + 1])
        modules += [linear, torch.nn.ReLU()]
    model = torch.nn.Sequential(*modules[:-1])
    _state["model"] = DistributedDataParallel(model, gradient_as_bucket_view=True)
    _state["optimizer"] = torch.optim.SGD(model.parameters(), mlp_values.LEARNING_RATE)
    _state["batch"] = [torch.from_numpy(v) for v in mlp_values.batch(width, batch, rank)]


def steps(kind, count):
    """Runs steps; [begin, end] of each, on the clock of all processes, and the last loss."""
    del kind
    x, y = _state["batch"]
    spans = []
    for _ in range(count):
        begin = time.monotonic()
        _state["optimizer"].zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(_state["model"](x), y)
        loss.backward()
        _state["optimizer"].step()
        value = float(loss)
        spans.append([begin, time.monotonic()])
    return {"spans": spans, "loss": value}
