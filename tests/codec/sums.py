"""What a job makes of compressed tensors, from the formats in tests/codec/oracle.py."""

import numpy as np

from tests.codec import oracle

# As `compression` takes them: the codec up and the codec of the sum, with all options.
CODECS = {
    "int8": ("int8:block=32,stochastic=0", "int8:block=32,stochastic=0"),
    "fp8": ("fp8:block=128", "fp8:block=128"),
    "int4": ("int4:block=32,feedback=0", "int8:block=32,stochastic=0"),
    "int4:feedback=1": ("int4:block=32,feedback=1", "int8:block=32,stochastic=0"),
    "onebit": ("onebit:feedback=1", "int8:block=32,stochastic=0"),
    "onebit:feedback=0": ("onebit:feedback=0", "int8:block=32,stochastic=0"),
    "topk": ("topk:feedback=1,ratio=0.01", "int8:block=32,stochastic=0"),
    "topk:feedback=0,ratio=0.3": ("topk:feedback=0,ratio=0.3", "int8:block=32,stochastic=0"),
    "randomk": ("randomk:feedback=1,ratio=0.25", "int8:block=32,stochastic=0"),
    "dithering": ("dithering:bits=4,block=256,l2=0,natural=0", "int8:block=32,stochastic=0"),
    "dithering:bits=3,l2=1,natural=1": (
        "dithering:bits=3,block=256,l2=1,natural=1",
        "int8:block=32,stochastic=0",
    ),
    "randomk:feedback=0,ratio=0.3": ("randomk:feedback=0,ratio=0.3", "int8:block=32,stochastic=0"),
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


class Exchanges:
    """The exchanges of one tensor, from its first round on.

    Args:
        compression: a key of `CODECS`.
        name: of the tensor.
        part_elements: elements of a part.
        first_round: how often the name was exchanged before.
    """

    def __init__(self, compression, name, part_elements, first_round=0):
        self._up, self._down = CODECS[compression]
        self._feeds_back = "feedback=1" in self._up
        self._key = key_of(name)
        self._part_elements = part_elements
        self._round = first_round
        self._residuals = {}  # by part and rank

    def next(self, gradients, average=False):
        """The next round's result on every worker.

        Args:
            gradients: the workers' float32 arrays of one axis, in rank order.
            average: whether the sum is divided by the number of workers.

        Returns:
            An array.
        """
        begins = range(0, len(gradients[0]), self._part_elements)
        with np.errstate(all="ignore"):
            parts = [
                self._part(
                    part,
                    [each[begin : begin + self._part_elements] for each in gradients],
                    len(gradients) if average else 1,
                )
                for part, begin in enumerate(begins)
            ]
        self._round += 1
        return np.concatenate(parts)

    def _part(self, part, gradients, divisor):
        seed = (0, self._key, part, self._round)
        total = None
        for rank, values in enumerate(gradients):
            received = self._received(part, rank, values, (*seed, rank))
            total = received if total is None else total + received
        total = oracle.one_nan(total / np.float32(divisor) if divisor > 1 else total)
        number, payload = oracle.encode(self._down, total, (*seed, len(gradients)))
        return oracle.decode(self._down, number, payload, len(total))

    def _received(self, part, rank, values, seed):
        """What the server makes of a worker's part."""
        if self._feeds_back:
            values = values + self._residuals.get((part, rank), np.float32(0))
        number, payload = oracle.encode(self._up, values, seed)
        received = oracle.decode(self._up, number, payload, len(values))
        residual = values - received
        if self._feeds_back and np.isfinite(residual).all():
            self._residuals[part, rank] = residual
        return received
