"""The codecs of cc/codec in NumPy, written from their formats and not from their code."""

from collections.abc import Callable

import numpy as np

Array = np.ndarray

CODECS = (
    "raw",
    "fp16",
    "bf16",
    "int8:block=32,stochastic=0",
    "int8:block=256,stochastic=0",
    "int8:block=256,stochastic=1",
    "fp8:block=128",
    "int4:block=32,feedback=0",
    "onebit:feedback=1",
    "topk:feedback=1,ratio=0.01",
    "topk:feedback=1,ratio=0.3",
    "randomk:feedback=1,ratio=0.1",
    "randomk:feedback=0,ratio=0.3",
    "dithering:bits=4,block=256,l2=0,natural=0",
    "dithering:bits=3,block=32,l2=1,natural=0",
    "dithering:bits=4,block=256,l2=0,natural=1",
    "dithering:bits=8,block=4096,l2=1,natural=1",
    "dithering:bits=2,block=64,l2=0,natural=1",
    "thc:average=0,workers=4",
    "thc_sum:average=0,workers=1",
    "thc_sum:average=0,workers=2",
    "thc_sum:average=1,workers=3",
    "thc_sum:average=0,workers=9",
    "thc_sum:average=1,workers=18",
    "thc_sum:average=1,workers=256",
)
SEED = (1, 2, 3, 4, 5)  # job, key, part, round, sender

_NUMBERS = {
    name: number
    for number, name in enumerate(
        (
            *("raw", "fp16", "bf16", "int8", "fp8", "int4", "onebit", "topk", "randomk"),
            *(None, "dithering", "thc", "thc_sum"),
        )
    )
}


def split_mix(x: Array) -> Array:
    """SplitMix64's output function, element by element."""
    with np.errstate(over="ignore"):
        x = x.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return x ^ x >> np.uint64(31)


def values(kind: str, length: int, salt: int = 0) -> Array:
    """Returns float32 inputs; cc/codec/codec_test.cc makes the same ones."""
    bits = split_mix(np.arange(length, dtype=np.uint64) + np.uint64(salt << 32))
    exponents = {"plain": (100, 28), "wide": (0, 255), "subnormal": (0, 1), "zero": (0, 1)}
    first, count = exponents.get(kind, exponents["plain"])
    exponent = np.uint64(first) + (bits >> np.uint64(32)) % np.uint64(count)
    mantissa = np.uint64(0 if kind == "zero" else 0x7FFFFF) & bits
    sign = bits >> np.uint64(63) << np.uint64(31)
    made = (sign | exponent << np.uint64(23) | mantissa).astype(np.uint32).view(np.float32)
    if kind == "nan":
        made[length // 2] = np.nan
    if kind == "infinity":
        made[length // 3] = np.inf
        made[length - 1] = -np.inf
    return made


def random_state(seed: tuple[int, ...]) -> Array:
    """What the random numbers of a part follow from: one uint64."""
    state = np.zeros(1, np.uint64)
    for word in seed:
        state = split_mix(state ^ np.uint64(word))
    return state


def draw(index: Array, state: Array) -> Array:
    """The 32 bits that each index of a part draws."""
    low = np.uint32(state[0] & np.uint64(0xFFFFFFFF))
    high = np.uint32(state[0] >> np.uint64(32))
    with np.errstate(over="ignore"):
        x = index.astype(np.uint32) + low
        x = (x ^ x >> np.uint32(16)) * np.uint32(0x85EBCA6B)
        x = ((x ^ x >> np.uint32(13)) + high) * np.uint32(0xC2B2AE35)
        return x ^ x >> np.uint32(16)


def encode(codec: str, x: Array, seed: tuple[int, ...] = SEED) -> tuple[int, bytes]:
    """Returns the codec's number, 0 where the part stays raw, and the payload."""
    name = codec.partition(":")[0]
    block, encode_block, _ = _blocks(codec, seed)
    bits = draw(np.arange(len(x)), random_state(seed))
    draws = (bits >> np.uint32(8)).astype(np.float32) / np.float32(2**24)
    payload = b"".join(
        encode_block(x[i : i + block], draws[i : i + block]) for i in range(0, len(x), block)
    )
    return (_NUMBERS[name], payload) if len(payload) < x.nbytes else (0, x.tobytes())


def decode(codec: str, number: int, payload: bytes, length: int) -> Array:
    """Returns the elements of a payload."""
    block, _, decode_block = _blocks(codec if number else "raw")
    decoded = np.zeros(length, np.float32)
    data = np.frombuffer(payload, np.uint8)
    begin = 0
    with np.errstate(all="ignore"):
        for i in range(0, length, block):
            count = min(block, length - i)
            decoded[i : i + count], used = decode_block(data[begin:], count)
            begin += used
    assert begin == len(payload)
    return one_nan(decoded)


def one_nan(x: Array) -> Array:
    """Makes all NaNs the quiet one."""
    x[np.isnan(x)] = np.uint32(0x7FC00000).view(np.float32)
    return x


def _scale(x: Array, levels: int) -> tuple[bytes, np.float32]:
    """The bfloat16 in front of a block, and the inverse of it."""
    if not np.isfinite(x).all():
        return np.uint16(0x7FC0).tobytes(), np.float32(0)
    largest = np.abs(x).max()
    if largest == 0:
        return np.uint16(0).tobytes(), np.float32(0)
    exact = np.maximum(largest * (np.float32(1) / np.float32(levels)), np.float32(2.0**-126))
    bits = (int(exact.view(np.uint32)) + 0xFFFF) >> 16
    return np.uint16(bits).tobytes(), np.float32(1) / np.uint32(bits << 16).view(np.float32)


def _load_scale(data: Array) -> np.float32:
    return np.uint32(int(data[:2].view(np.uint16)[0]) << 16).view(np.float32)


def _quantize(x: Array, levels: int, draws: Array | None) -> tuple[bytes, Array]:
    scale, inverse = _scale(x, levels)
    if inverse == 0:
        return scale, np.zeros(len(x), np.int8)
    z = x * inverse
    if draws is None:
        rounded = np.rint(z)
    else:
        rounded = np.floor(z) + (draws < z - np.floor(z))
    return scale, np.clip(rounded, -levels, levels).astype(np.int8)


def _int8(stochastic: bool) -> tuple[Callable, Callable]:
    def encode_block(x: Array, draws: Array) -> bytes:
        scale, q = _quantize(x, 127, draws if stochastic else None)
        return scale + q.tobytes()

    def decode_block(data: Array, count: int) -> tuple[Array, int]:
        q = data[2 : 2 + count].view(np.int8).astype(np.float32)
        return q * _load_scale(data), 2 + count

    return encode_block, decode_block


def _int4_encode(x: Array, draws: Array) -> bytes:
    scale, q = _quantize(x, 7, draws)
    nibbles = np.full(len(q) + len(q) % 2, 8, np.uint8)
    nibbles[: len(q)] = q + 8
    return scale + (nibbles[0::2] | nibbles[1::2] << 4).tobytes()


def _int4_decode(data: Array, count: int) -> tuple[Array, int]:
    used = 2 + (count + 1) // 2
    nibbles = np.stack([data[2:used] & 15, data[2:used] >> 4], axis=1).reshape(-1)[:count]
    return (nibbles.astype(np.float32) - np.float32(8)) * _load_scale(data), used


# The magnitudes of e4m3, in order.
_E4M3 = np.array(
    [m * 2.0**-9 if e == 0 else (8 + m) * 2.0 ** (e - 10) for e in range(16) for m in range(8)][
        :127
    ]
)


def _fp8_encode(x: Array, _: Array) -> bytes:
    scale, inverse = _scale(x, 448)
    if inverse == 0:
        return scale + bytes(len(x))
    z = np.abs((x * inverse).astype(np.float64))
    above = np.clip(np.searchsorted(_E4M3, z), 1, 126)
    to_above, to_below = _E4M3[above] - z, z - _E4M3[above - 1]
    down = (to_below < to_above) | ((to_below == to_above) & (above % 2 == 1))
    sign = np.where(np.signbit(x), 128, 0)
    return scale + (np.where(down, above - 1, above) | sign).astype(np.uint8).tobytes()


def _fp8_decode(data: Array, count: int) -> tuple[Array, int]:
    table = np.append(_E4M3, np.nan).astype(np.float32)
    q = data[2 : 2 + count]
    return np.where(q & 128, -table[q & 127], table[q & 127]) * _load_scale(data), 2 + count


def _onebit_encode(x: Array, _: Array) -> bytes:
    sums = np.zeros(8)
    padded = np.zeros((len(x) + 7) // 8 * 8)
    padded[: len(x)] = np.abs(x)
    for lane in range(8):
        sums[lane] = np.cumsum(padded[lane::8])[-1]
    mean = np.cumsum(sums)[-1] / len(x) if np.isfinite(x).all() else np.nan
    return np.float32(mean).tobytes() + np.packbits(x < 0, bitorder="little").tobytes()


def _onebit_decode(data: Array, count: int) -> tuple[Array, int]:
    used = 4 + (count + 7) // 8
    scale = data[:4].view(np.float32)[0]
    negative = np.unpackbits(data[4:used], count=count, bitorder="little")
    return np.where(negative, -scale, scale), used


def _index_layout(k: int, n: int) -> tuple[int | None, int]:
    """The low bits of each index, `None` for a bitmap, and the bytes of all."""
    low = int(np.log2(n // k)) if n >= k else 0
    coded = (k * low + 7) // 8 + (k + (n - 1 >> low) + 7) // 8
    return (None, (n + 7) // 8) if (n + 7) // 8 <= coded else (low, coded)


def _count(ratio: float, n: int) -> int:
    return max(1, int(np.ceil(ratio * n)))


def _topk(ratio: float) -> tuple[Callable, Callable]:
    def encode_block(x: Array, _: Array) -> bytes:
        k = _count(ratio, len(x))
        magnitudes = (x.view(np.uint32) & 0x7FFFFFFF).astype(np.int64)
        indices = np.sort(np.argsort(-magnitudes, kind="stable")[:k])
        low, _ = _index_layout(k, len(x))
        if low is None:
            bits = np.zeros(len(x), np.uint8)
            bits[indices] = 1
            return x[indices].tobytes() + np.packbits(bits, bitorder="little").tobytes()
        lows = indices[:, None] >> np.arange(low) & 1
        highs = np.zeros(k + (len(x) - 1 >> low), np.uint8)
        highs[(indices >> low) + np.arange(k)] = 1
        packed = [np.packbits(bits.reshape(-1), bitorder="little") for bits in (lows != 0, highs)]
        return x[indices].tobytes() + packed[0].tobytes() + packed[1].tobytes()

    def decode_block(data: Array, count: int) -> tuple[Array, int]:
        k = _count(ratio, count)
        low, coded = _index_layout(k, count)
        data, used = data[: 4 * k + coded], 4 * k + coded
        bits = np.unpackbits(data[4 * k :], bitorder="little")
        if low is None:
            indices = np.flatnonzero(bits)
        else:
            lows = bits[: k * low].reshape(k, low) @ (1 << np.arange(low))
            highs = np.flatnonzero(bits[(k * low + 7) // 8 * 8 :]) - np.arange(k)
            indices = (highs << low) + lows
        decoded = np.zeros(count, np.float32)
        decoded[indices] = data[: 4 * k].view(np.float32)
        return decoded, used

    return encode_block, decode_block


def _randomk(ratio: float, feedback: bool, seed: tuple[int, ...]) -> tuple[Callable, Callable]:
    def chosen(state: Array, n: int) -> tuple[Array, Array]:
        """Where sections begin, and the last one's end, and what they have chosen."""
        k = _count(ratio, n)
        edges = np.arange(k + 1, dtype=np.uint64) * np.uint64(n) // np.uint64(k)
        places = draw(np.arange(k), state) * np.diff(edges) >> np.uint64(32)
        return edges.astype(np.int64), (edges[:-1] + places).astype(np.int64)

    def encode_block(x: Array, _: Array) -> bytes:
        state = random_state(seed)
        edges, indices = chosen(state, len(x))
        scales = np.float32(1) if feedback else np.diff(edges).astype(np.float32)
        with np.errstate(over="ignore"):
            sent = x[indices] * scales
        bad = np.add.reduceat(~np.isfinite(x), edges[:-1]).astype(bool)
        return state.tobytes() + one_nan(np.where(bad, np.float32(np.nan), sent)).tobytes()

    def decode_block(data: Array, count: int) -> tuple[Array, int]:
        used = 8 + 4 * _count(ratio, count)
        edges, indices = chosen(data[:8].view(np.uint64), count)
        values = data[8:used].view(np.float32)
        decoded = np.zeros(count, np.float32)
        decoded[indices] = values
        decoded[np.repeat(np.isnan(values), np.diff(edges))] = np.nan
        return decoded, used

    return encode_block, decode_block


def _norm(x: Array, is_l2: bool) -> np.float32:
    if not np.isfinite(x).all():
        return np.uint32(0x7FC00000).view(np.float32)
    largest = np.abs(x).max()
    if largest == 0:
        return np.float32(0)
    if is_l2:
        squares = np.zeros((len(x) + 7) // 8 * 8)
        squares[: len(x)] = x.astype(np.float64) ** 2
        lanes = np.cumsum(squares.reshape(-1, 8), axis=0)[-1]
        largest = np.float32(min(np.sqrt(np.cumsum(lanes)[-1]), float(np.finfo(np.float32).max)))
    return np.maximum(largest, np.float32(2.0**-126))


def _dithering(options: dict[str, str]) -> tuple[Callable, Callable]:
    bits, is_l2, is_natural = (int(options[name]) for name in ("bits", "l2", "natural"))
    top = 2 ** (bits - 1) - 1

    def encode_block(x: Array, draws: Array) -> bytes:
        norm = _norm(x, bool(is_l2))
        if not norm > 0:
            return norm.tobytes() + bytes((len(x) * bits + 7) // 8)
        share = np.abs(x) / norm
        if is_natural:
            units = share * np.float32(2.0 ** (top - 1))
            mantissa, exponent = np.frexp(units)
            above = np.where(units < 1, units, 2 * mantissa - 1)
            below = np.where(units < 1, 0, exponent)
        else:
            z = share * np.float32(top)
            below = np.floor(z)
            above = z - below
        levels = np.minimum(below + (draws < above), top).astype(np.uint8)
        codes = levels | np.signbit(x).astype(np.uint8) << (bits - 1)
        stream = codes[:, None] >> np.arange(bits) & 1
        return norm.tobytes() + np.packbits(stream.astype(np.uint8), bitorder="little").tobytes()

    def decode_block(data: Array, count: int) -> tuple[Array, int]:
        used = 4 + (count * bits + 7) // 8
        norm = data[:4].view(np.float32)[0]
        stream = np.unpackbits(data[4:used], count=count * bits, bitorder="little")
        codes = stream.reshape(count, bits) @ (1 << np.arange(bits))
        levels = codes & top
        if is_natural:
            magnitudes = np.where(levels == 0, 0, np.ldexp(1.0, levels - top))
        else:
            magnitudes, norm = levels, norm / np.float32(top)
        signed = np.where(codes > top, -magnitudes.astype(np.float32), magnitudes)
        return signed.astype(np.float32) * norm, used

    return encode_block, decode_block


_ROTATED = 4096  # elements of a whole block of thc


def _rotate(x: Array) -> Array:
    """A Hadamard transform of the columns of 64 x 64 elements, the transposition, and again."""
    matrix = x.reshape(64, 64)
    for _ in range(2):
        for step in (32, 16, 8, 4, 2, 1):
            pairs = matrix.reshape(-1, 2, step, 64)
            first, second = pairs[:, 0], pairs[:, 1]
            matrix = np.stack([first + second, first - second], axis=1).reshape(64, 64)
        matrix = matrix.T
    return matrix.T.reshape(-1)


def _flip(x: Array) -> Array:
    """The random signs of a block of thc."""
    negative = draw(np.arange(_ROTATED), np.zeros(1, np.uint64)) >> np.uint32(31)
    return np.where(negative, -x, x)


def _thc_codes(z: Array, most: int, draws: Array | None) -> Array:
    """Levels plus `most` plus 1, rounded at random or, of whole numbers, to nearest."""
    clipped = np.clip(np.nan_to_num(z), -most, most)
    if draws is None:
        levels = np.rint(clipped)
    else:
        levels = np.floor(clipped) + (draws < clipped - np.floor(clipped))
    return np.where(np.isfinite(z), levels + (most + 1), 0).astype(np.uint16)


def _thc_levels(codes: Array, most: int) -> Array:
    levels = codes.astype(np.float32) - np.float32(most + 1)
    return np.where(codes == 0, np.float32(np.nan), levels)


def _thc_encode(x: Array, draws: Array) -> bytes:
    with np.errstate(all="ignore"):
        if len(x) < _ROTATED:
            return _thc_codes(x * np.float32(2), 127, draws).astype(np.uint8).tobytes()
        codes = _thc_codes(_rotate(_flip(x)) * np.float32(2 / 64), 7, draws).astype(np.uint8)
    return (codes[0::2] | codes[1::2] << 4).tobytes()


def _thc_decode(data: Array, count: int) -> tuple[Array, int]:
    if count < _ROTATED:
        return _thc_levels(data[:count], 127), count
    nibbles = np.stack([data[: count // 2] & 15, data[: count // 2] >> 4], axis=1).reshape(-1)
    return _thc_levels(nibbles, 7), count // 2


def _thc_sum(options: dict[str, str]) -> tuple[Callable, Callable]:
    workers = int(options["workers"])
    divisor = np.float32(workers if options["average"] == "1" else 1)
    bits = max(4, int(np.ceil(np.log2(14 * workers + 2))))
    bits = 16 if bits > 8 else bits

    def encode_block(x: Array, _: Array) -> bytes:
        is_short = len(x) < _ROTATED
        with np.errstate(all="ignore"):
            codes = _thc_codes(x * divisor, (127 if is_short else 7) * workers, None)
        stream = codes[:, None] >> np.arange(16 if is_short else bits) & 1
        return np.packbits(stream.astype(np.uint8), bitorder="little").tobytes()

    def decode_block(data: Array, count: int) -> tuple[Array, int]:
        is_short = count < _ROTATED
        width = 16 if is_short else bits
        used = count * width // 8
        stream = np.unpackbits(data[:used], bitorder="little").reshape(count, width)
        levels = _thc_levels(stream @ (1 << np.arange(width)), (127 if is_short else 7) * workers)
        if is_short:
            return levels / (np.float32(2) * divisor), used
        return _flip(_rotate(levels)) / (np.float32(128) * divisor), used

    return encode_block, decode_block


def _cast(codec: str) -> tuple[Callable, Callable]:
    def encode_block(x: Array, _: Array) -> bytes:
        if codec == "raw":
            return x.tobytes()
        if codec == "fp16":
            with np.errstate(over="ignore"):
                return x.astype(np.float16).tobytes()
        bits = x.view(np.uint32).astype(np.uint64)
        rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        return np.where(np.isnan(x), bits >> 16 | 0x40, rounded).astype(np.uint16).tobytes()

    def decode_block(data: Array, count: int) -> tuple[Array, int]:
        if codec == "raw":
            return data[: 4 * count].view(np.float32), 4 * count
        if codec == "fp16":
            return data[: 2 * count].view(np.float16).astype(np.float32), 2 * count
        wide = data[: 2 * count].view(np.uint16).astype(np.uint32) << 16
        return wide.view(np.float32), 2 * count

    return encode_block, decode_block


def _blocks(codec: str, seed: tuple[int, ...] = SEED) -> tuple[int, Callable, Callable]:
    """Elements of a block, its encoder, its decoder."""
    name, _, rest = codec.partition(":")
    options = dict(option.split("=") for option in rest.split(",") if option)
    block = int(options.get("block", 4096))
    if name == "int8":
        return (block, *_int8(options["stochastic"] == "1"))
    if name == "topk":
        return (2**48, *_topk(float(options["ratio"])))
    if name == "randomk":
        return (2**48, *_randomk(float(options["ratio"]), options["feedback"] == "1", seed))
    if name == "dithering":
        return (block, *_dithering(options))
    if name == "thc_sum":
        return (block, *_thc_sum(options))
    others = {
        "fp8": (_fp8_encode, _fp8_decode),
        "int4": (_int4_encode, _int4_decode),
        "onebit": (_onebit_encode, _onebit_decode),
        "thc": (_thc_encode, _thc_decode),
    }
    return (block, *(others[name] if name in others else _cast(name)))
