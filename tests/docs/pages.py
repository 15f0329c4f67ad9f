"""Pages of the documentation, their headings, and the links between them.

    python tests/docs/pages.py

prints how many words each page for users has.
"""

import collections
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
INDEX = ROOT / "docs" / "index.md"
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/*.md", "benchmarks/*.md", "benchmarks/results/*.md")
    for page in ROOT.glob(pattern)
)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What the site's menu has for those who change tf_byteps; all other pages are users'.
_CONTRIBUTORS = "Change tf_byteps"
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def name(page):
    """Its path below the repository's root."""
    return str(page.relative_to(ROOT))


def prose(page):
    """All but its programs."""
    return BLOCK.sub("", page.read_text())


def anchors(page):
    """The anchors of a page's headings, where the repository is looked at and on the site."""
    found = []
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE):
        text = re.sub(r"[^\w\s-]", "", heading.replace("`", "").lower()).strip()
        found += [re.sub(r"\s", "-", text), re.sub(r"[-\s]+", "-", text)]
    return found


def links(page):
    """(page or other file, anchor) of all links that stay in the repository."""
    for target in _LINK.findall(prose(page)):
        if not re.match(r"\w+:", target):
            path, _, anchor = target.partition("#")
            yield (page.parent / path).resolve() if path else page, anchor


def clicks_from(start):
    """{(page, anchor): the least number of clicks to there from a page}; "" is a page's top."""
    clicks = {(start, ""): 0}
    found = collections.deque([start])
    while found:
        page = found.popleft()
        for target, anchor in links(page):
            if target.suffix != ".md":
                continue
            if (target, "") not in clicks:
                clicks[target, ""] = clicks[page, ""] + 1
                found.append(target)
            clicks.setdefault((target, anchor), clicks[page, ""] + 1)
    return clicks


def of_users():
    """README, and the pages of the site that are not for those who change tf_byteps."""
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    others = re.search(rf"^  - {_CONTRIBUTORS}:\n((?:    .*\n)+)", menu, re.MULTILINE)[1]
    names = re.findall(r"- (\w+\.md)$", menu.replace(others, ""), re.MULTILINE)
    return [README, *(ROOT / "docs" / name for name in names)]


def words(page):
    """How many words it has, those of tables and programs included."""
    return sum(bool(re.search(r"\w", word)) for word in page.read_text().split())


if __name__ == "__main__":
    for each in of_users():
        print(f"{words(each):6,}  {name(each)}")
    print(f"{sum(map(words, of_users())):6,}  words in all")
