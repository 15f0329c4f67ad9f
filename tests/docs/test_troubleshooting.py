"""docs/troubleshooting.md quotes messages that the code has, and says what to do about each."""

import pathlib
import re
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).parent))

import literals  # noqa: E402

_PAGE = (literals.ROOT / "docs" / "troubleshooting.md").read_text()
_ENTRIES = dict(re.findall(r"^### (.*)\n((?:(?!^##).*\n)*)", _PAGE, re.MULTILINE))
_QUOTES = [
    *"".join(re.findall(r"^```text\n(.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL)).splitlines(),
    *re.findall(r"^\* \**`([^`]*)`", _PAGE, re.MULTILINE),
]
_LEAST_LETTERS = 6  # of a quote: fewer are in any source
_OTHERS = ["Connection refused"]  # what the system says


@pytest.fixture(scope="module", name="texts")
def _texts():
    return [text for text in literals.of_all_sources() if text]


def _is_in(quote, texts):
    """Whether one function has all that is between the ellipses, in this order."""
    pieces = [re.escape(piece) for piece in quote.split("…") if piece]
    pattern = re.compile(".*?".join(pieces), re.DOTALL)
    return any(pattern.search(text) for text in texts)


@pytest.mark.parametrize("quote", [quote for quote in _QUOTES if quote not in _OTHERS])
def test_the_code_says_so(quote, texts):
    assert len(re.findall(r"\w", quote)) >= _LEAST_LETTERS
    assert _is_in(quote, texts), "no source has this message any more"


@pytest.mark.parametrize("entry", _ENTRIES)
def test_an_entry_says_what_to_do(entry):
    quotes, _, rest = _ENTRIES[entry].rpartition("```")
    assert quotes or "No " in rest  # without a message it says so
    assert len(rest.split()) > 20


def test_a_text_that_no_source_has_is_found(texts):
    assert not _is_in("cannot reach the moon at …", texts)
    assert not _is_in("requests … cannot reach the scheduler at", texts)  # another order


@pytest.mark.parametrize(
    "read, source, joined",
    [
        (literals.of_python, 'def f():\n    """Doc."""\n    raise E(f"a {b} c" "d")\n', "a  cd"),
        (literals.of_python, 'class C:\n    def f(self):\n        log("a %s b", c)\n', "a  b"),
        (literals.of_cpp, 'f() {\n  // "no"\n  g("a \\"" + b + "\\" c"\n    "d");\n', 'a "" cd'),
    ],
)
def test_literals_are_joined(read, source, joined):
    assert "".join(read(source)) == joined
