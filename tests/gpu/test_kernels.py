"""The kernels that are committed; needs no GPU."""

from tools import make_ptx


def test_the_header_is_made_of_the_source():
    made_of = make_ptx.HEADER.read_text()
    assert make_ptx.digest() in made_of, "codec_kernels.cu has changed: run `make ptx`"
    assert f".version {make_ptx.PTX_VERSION}" in made_of
