"""Sources and pages use the field's words: CONTRIBUTING.md has a table of them."""

import pathlib
import re

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]

# What is not written, and the row of the table that says what is.
_OLD = {
    r"\bon (?:its|the|their) way\b|\bunder ?way\b": "in flight",
    r"\bStay\b|\bstay_of\b": "session",
    r"\bFarewells?\b|\bmetrics[./]farewell\b": "exit summary",
    r"\bnorms_ahead\.py\b|\bNormsAhead\b": "pipelined",
    r"\b(?:late_waits|backward_order)(?:\.py|\.\w+\()": "scheduling",
    r"\bjoined\.py\b|\breduce_joined\b": "fusion",
    r"\blate_logs\b": "deferred",
    r"\bwhole_files\.py\b": "atomic write",
    r"\b(?:Device|Stream|Cpu|Result|StartAfter)Mark\b": "event",
    r"\b(?:Set|Until)OnItsWay\b|\bon_its_way\b": "submitted",
    r"[Hh]and_?[Oo]ver(?:Way|Tensors|Call|Compiler)|\bbyteps_(?:hand_over|take)\b": "detached",
    r"\bGoOn(?:ByRdma|OverTcp)\b": "upgrade, fall back",
    r"\bShakeHands\b": "handshake",
    r"\bMortalJob\b": "killable",
    r"\bWorkerPlace\b": "rank info",
    r"\bPayloadPlace\b": "location",
    r"\bGoneWorker\b|\bOnGone\b": "departed",
    r"\bk?Patience\b": "timeout",
    r"\bTakeBack\b|\btake_back\b|\bServerBack\b": "readmit",
    r"\bCompanion\b|\bWorkerCompanion\b": "listener",
    r"\b(?:_|was_)?told(?: = |=\w|\[\w|\(\))|\btold_here\b": "report, reported",
    r"\bHoldRounds\b|\bHoldUp(?:Stream|All)\b": "pause; wait",
    r"\bkWanted\b|\bOnWanted\b|\bWantedParts\b": "requested",
    r"\b(?:On)?(?:Rounds|Parts|Results)Held\b|\bOnHeld\b": "progress",
    r"\bHeldBytes\b": "allocated bytes",
    r"\bk?GateCall\b|\bbyteps_gate|custom_calls\.GATE": "barrier",
}
_FOLDERS = "cc docs tf_byteps tests benchmarks examples tools".split()
_SUFFIXES = (".py", ".pyi", ".md", ".h", ".cc", ".cu", ".sh")
# Results are of their day; the folder of this test quotes old words.
_LEFT_OUT = "benchmarks/results benchmarks/gpu/results tests/docs".split()


def _texts():
    paths = [path for folder in _FOLDERS for path in (_ROOT / folder).rglob("*")]
    for path in [_ROOT / "README.md", _ROOT / "CHANGELOG.md", *sorted(paths)]:
        name = path.relative_to(_ROOT).as_posix()
        if name.endswith(_SUFFIXES) and not name.startswith(tuple(_LEFT_OUT)):
            yield name, path.read_text()


def _found(pattern, texts):
    return [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}"
        for name, text in texts
        for match in re.finditer(pattern, text)
    ]


@pytest.fixture(scope="module", name="texts")
def _all_texts():
    return list(_texts())


@pytest.mark.parametrize("pattern", _OLD)
def test_no_source_has_an_old_word(pattern, texts):
    assert _found(pattern, texts) == [], f"write {_OLD[pattern]!r}"


@pytest.mark.parametrize("word", _OLD.values())
def test_the_table_says_what_to_write(word):
    assert f"| {word} |" in (_ROOT / "CONTRIBUTING.md").read_text()


def test_an_old_word_is_found():
    texts = [("a.py", 'x = 1\n"""A part under way."""\n'), ("b.py", "in flight")]
    (pattern,) = (each for each, word in _OLD.items() if word == "in flight")
    assert _found(pattern, texts) == ["a.py:2: under way"]
