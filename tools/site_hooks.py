"""What MkDocs asks while it makes the site: how pages rank, their diagrams, and the version."""

import pathlib
import re
import sys

_ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(_ROOT))

from tools.state_pictures import svg  # noqa: E402

_DIAGRAM = re.compile(r"^```mermaid\n(stateDiagram-v2\n.*?)^```$", re.MULTILINE | re.DOTALL)
# Where users' questions are answered. What developers read is found on its own page.
_BOOSTS = {"how_to.md": 3, "troubleshooting.md": 3, "start.md": 2, "configuration.md": 2}
_LEFT_OUT = ("protocol.md", "strategy_tests.md", "robustness.md", "tested.md")


def on_config(config):
    """Shows the version at the end of each page."""
    source = (_ROOT / "tf_byteps" / "__init__.py").read_text()
    version = re.search(r'^__version__ = "(.+)"', source, re.MULTILINE)[1]
    config.copyright = f"tf_byteps {version}"
    return config


def on_page_markdown(markdown, page, **_):
    """Says how a page ranks, and draws its diagrams. Its source stays free of both."""
    path = page.file.src_uri
    if path in _LEFT_OUT:
        page.meta["search"] = {"exclude": True}
    elif path in _BOOSTS:
        page.meta["search"] = {"boost": _BOOSTS[path]}
    return _DIAGRAM.sub(lambda found: f"<div>\n{svg(found[1])}\n</div>", markdown)
