"""Tensor lists of real models, in forward order, from the formulae of their architectures."""

import dataclasses
import math

FLOAT_BYTES = 4
UNIFORM_TENSORS = 32
UNIFORM_ELEMENTS = 1 << 20  # of each: 4 MiB


@dataclasses.dataclass(frozen=True)
class Model:
    """A model as its gradients' shapes.

    Attributes:
        name: of the model.
        tensors: (name, shape) pairs in forward order.
    """

    name: str
    tensors: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def elements(self):
        """The number of parameters."""
        return sum(math.prod(shape) for _, shape in self.tensors)

    @property
    def bytes(self):
        """M: the size of all gradients, float32."""
        return FLOAT_BYTES * self.elements

    def scaled(self, divisor):
        """The same tensors with a part of their rows (or elements), at least one."""
        if divisor == 1:
            return self
        shrunk = tuple(
            (name, (max(1, shape[0] // divisor), *shape[1:])) for name, shape in self.tensors
        )
        return Model(f"{self.name}, tensors / {divisor}", shrunk)


def uniform(tensors=UNIFORM_TENSORS, elements=UNIFORM_ELEMENTS):
    """Equal tensors: nothing for placement to do."""
    return Model("uniform", tuple((f"tensor{n}", (elements,)) for n in range(tensors)))


def resnet50():
    """ResNet-50 (He et al., 2015, table 1): 161 tensors."""
    tensors = []

    def convolution(name, size, inputs, outputs):
        tensors.append((f"{name}/kernel", (outputs, inputs, size, size)))
        tensors.append((f"{name}/gamma", (outputs,)))
        tensors.append((f"{name}/beta", (outputs,)))

    convolution("stem", 7, 3, 64)
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            name = f"stage{stage}/block{block}"
            convolution(f"{name}/reduce", 1, channels, width)
            convolution(f"{name}/spatial", 3, width, width)
            convolution(f"{name}/expand", 1, width, 4 * width)
            if block == 0:
                convolution(f"{name}/shortcut", 1, channels, 4 * width)
            channels = 4 * width
    tensors += [("classes/kernel", (1000, channels)), ("classes/bias", (1000,))]
    return Model("ResNet-50", tuple(tensors))


def vgg16():
    """VGG-16 (Simonyan and Zisserman, 2014, configuration D): 32 tensors."""
    tensors = []
    channels = 3
    for block, (layers, width) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))):
        for layer in range(layers):
            name = f"block{block}/convolution{layer}"
            tensors += [(f"{name}/kernel", (width, channels, 3, 3)), (f"{name}/bias", (width,))]
            channels = width
    inputs = channels * 7 * 7
    for layer, units in enumerate((4096, 4096, 1000)):
        tensors += [(f"dense{layer}/kernel", (units, inputs)), (f"dense{layer}/bias", (units,))]
        inputs = units
    return Model("VGG-16", tuple(tensors))


def bert_large():
    """BERT-large, uncased (Devlin et al., 2018): 24 layers of width 1024, 391 tensors."""
    width, inner = 1024, 4096
    tensors = []

    def dense(name, inputs, units):
        tensors.extend([(f"{name}/kernel", (units, inputs)), (f"{name}/bias", (units,))])

    def normalization(name):
        tensors.extend([(f"{name}/gamma", (width,)), (f"{name}/beta", (width,))])

    for table, rows in (("words", 30522), ("positions", 512), ("segments", 2)):
        tensors.append((f"embeddings/{table}", (rows, width)))
    normalization("embeddings/normalization")
    for layer in range(24):
        for part in ("query", "key", "value", "output"):
            dense(f"layer{layer}/attention/{part}", width, width)
        normalization(f"layer{layer}/attention/normalization")
        dense(f"layer{layer}/feed_forward/inner", width, inner)
        dense(f"layer{layer}/feed_forward/outer", inner, width)
        normalization(f"layer{layer}/feed_forward/normalization")
    dense("pooler", width, width)
    return Model("BERT-large", tuple(tensors))


MODELS = {"uniform": uniform, "resnet50": resnet50, "vgg16": vgg16, "bert_large": bert_large}


def optimal_seconds(workers, servers, model_bytes, bytes_per_second):
    """t_opt: the least time in which the gradients of `workers` hosts can be summed.

    The bound of the BytePS paper (OSDI'20, section 4.1): each byte of a NIC counts, and load is
    balanced over the `servers` additional hosts and the servers that the workers' hosts run.

    Args:
        workers: n, the number of worker hosts; one host sends nothing.
        servers: k, the number of hosts that run a server only; more than n are of no use.
        model_bytes: M.
        bytes_per_second: B, the payload rate of a NIC, each way.

    Returns:
        Seconds.
    """
    n, k = workers, min(servers, workers)
    if n == 1:
        return 0.0
    return 2 * n * (n - 1) * model_bytes / ((n * n + k * n - 2 * k) * bytes_per_second)
