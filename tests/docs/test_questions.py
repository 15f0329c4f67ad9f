"""A new reader's questions: two clicks lead to the answer."""

import pathlib
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).parent))

import pages  # noqa: E402

_MOST_CLICKS = 2
# Where each is answered: a link must lead to this heading, not only to its page.
_ANSWERS = {
    "How do I install it on two hosts?": ("start", "on-several-machines"),
    "How do I resume after a crash?": ("reliability", "rejoining-after-a-failure"),
    "What differs from one process?": ("strategy_contract", "what-differs-from-one-process"),
    "Why is it slow?": ("tuning", "look-first"),
    "How do I add a codec?": ("architecture", "add-a-codec"),
    "What does a global batch mean?": ("concepts", "what-a-global-batch-means"),
    "How do I save?": ("how_to", "save-and-resume"),
    "What does this error mean?": ("troubleshooting", ""),
    "Should I use it?": ("questions", "when-to-use-it-and-when-not-to"),
    "What hosts do I need?": ("questions", "what-do-n-workers-need"),
    "Must I change the learning rate?": ("questions", "larger-batches-learning-rate-and-warm-up"),
    "Why is the loss NaN?": ("questions", "the-loss-is-nan"),
    "Why is it out of memory?": ("questions", "out-of-memory"),
    "Why does it hang?": ("troubleshooting", "it-hangs-or-is-slow-to-end"),
}


@pytest.mark.parametrize("start", [pages.README, pages.INDEX], ids=pages.name)
@pytest.mark.parametrize("question", _ANSWERS)
def test_two_clicks_lead_to_the_answer(question, start):
    name, anchor = _ANSWERS[question]
    page = pages.ROOT / "docs" / f"{name}.md"
    assert not anchor or anchor in pages.anchors(page)
    assert pages.clicks_from(start).get((page, anchor), 99) <= _MOST_CLICKS


def test_the_index_leads_everywhere_within_two_clicks():
    clicks = pages.clicks_from(pages.INDEX)
    docs = (pages.ROOT / "docs").rglob("*.md")
    assert [pages.name(page) for page in docs if clicks.get((page, ""), 99) > _MOST_CLICKS] == []


def test_clicks_are_counted(tmp_path):
    for name, text in {
        "a": "# A\n[b](b.md#two) and [itself](#a)\n",
        "b": "# B\n## Two\n[c](c.md) [elsewhere](https://example.org)\n",
        "c": "# C\n[b](b.md)\n",
    }.items():
        (tmp_path / f"{name}.md").write_text(text)
    found = pages.clicks_from(tmp_path / "a.md")
    assert {(page.stem, anchor): clicks for (page, anchor), clicks in found.items()} == {
        ("a", ""): 0,
        ("a", "a"): 1,
        ("b", "two"): 1,
        ("b", ""): 1,
        ("c", ""): 2,
    }
