"""BytePS's `compression_params` become our compressors."""

import pytest

import tf_byteps as bps

codecs = bps.Compression


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, codecs.none),
        ({"fp16": True}, codecs.fp16),
        ({"compressor": "onebit", "scaling": True}, codecs.onebit(feedback=False)),
        ({"compressor": "onebit", "ef": "vanilla", "seed": 7}, codecs.onebit()),
        ({"compressor": "topk", "k": 0.001, "ef": "vanilla"}, codecs.topk(ratio=0.001)),
        ({"compressor": "topk", "k": 1024}, codecs.topk(ratio=0.001, feedback=False)),
        ({"compressor": "randomk", "k": 0.1, "ef": "vanilla"}, codecs.randomk(ratio=0.1)),
        ({"compressor": "randomk", "k": 10**7}, codecs.randomk(ratio=1, feedback=False)),
        ({"compressor": "dithering", "k": 7}, codecs.dithering(bits=4)),
        ({"compressor": "dithering", "k": 127}, codecs.dithering(bits=8)),
        (
            {"compressor": "dithering", "k": 4, "partition": "natural", "normalize": "l2"},
            codecs.dithering(bits=4, partition="natural", norm="l2"),
        ),
    ],
)
def test_what_they_become(params, expected):
    assert codecs.from_byteps(params) == expected


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"compressor": "multibit"}, "'compressor' is 'multibit': known: onebit, topk"),
        ({"kind": "topk"}, "'kind' is 'topk': known keys: compressor, ef"),
        ({"compressor": "topk"}, "'k' is None: topk needs a number above 0"),
        ({"compressor": "randomk", "k": -1}, "'k' is -1"),
        ({"compressor": "onebit", "momentum": "nesterov"}, "leave momentum to the optimizer"),
        ({"compressor": "onebit", "scaling": False}, "always scaled"),
        ({"compressor": "onebit", "ef": "sparse"}, "'ef' is 'sparse'"),
        ({"compressor": "dithering", "k": 2, "ef": "vanilla"}, "right on average"),
        ({"compressor": "dithering", "k": 128}, "at most 127"),
        ({"compressor": "dithering", "k": 2, "partition": "log"}, "partition is 'log'"),
    ],
)
def test_what_does_not_exist_is_refused(params, message):
    with pytest.raises(ValueError, match=message):
        codecs.from_byteps(params)
