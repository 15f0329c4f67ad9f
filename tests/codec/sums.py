"""What a job makes of compressed tensors, from the formats in tests/codec/oracle.py."""

import numpy as np

from tests.codec import oracle

# As `compression` takes them: the codec up and the codec of the sum, with all options.
CODECS = {
    "int8": ("int8:block=32,stochastic=0", "int8:block=32,stochastic=0"),
    "fp8": ("fp8:block=128", "fp8:block=128"),
    "int4": ("int4:block=32,feedback=0", "int8:block=32,stochastic=0"),
}


def key_of(name: str) -> int:
    """FNV-1a, 64 bits: KeyOfName in cc/base/tensor_description.cc."""
    key = 0xCBF29CE484222325
    for byte in name.encode():
        key = (key ^ byte) * 0x100000001B3 % 2**64
    return key


def gradient(rank: int, round_number: int, length: int) -> np.ndarray:
    """What a worker sends: magnitudes from 1e-3 to 1e3, other ones in each round."""
    random = np.random.default_rng([rank, round_number])
    signs = random.normal(size=length)
    return (signs * 10.0 ** random.uniform(-3, 3, length)).astype(np.float32)


def expected(compression, gradients, name, round_number, part_elements, average=False):
    """The result on every worker.

    Args:
        compression: a key of `CODECS`.
        gradients: the workers' float32 arrays of one axis, in rank order.
        name: of the exchange.
        round_number: how often the name was exchanged before.
        part_elements: elements of a part.
        average: whether the sum is divided by the number of workers.

    Returns:
        An array.
    """
    up, down = CODECS[compression]
    parts = []
    for part, begin in enumerate(range(0, len(gradients[0]), part_elements)):
        cut = [each[begin : begin + part_elements] for each in gradients]
        seed = (0, key_of(name), part, round_number)
        received = []
        for rank, values in enumerate(cut):
            number, payload = oracle.encode(up, values, (*seed, rank))
            received.append(oracle.decode(up, number, payload, len(values)))
        total = received[0]
        for values in received[1:]:
            total = total + values
        if average:
            total = total / np.float32(len(gradients))
        number, payload = oracle.encode(down, total, (*seed, len(gradients)))
        parts.append(oracle.decode(down, number, payload, len(total)))
    return np.concatenate(parts)
