"""For the site's reference: shows the `>>>` lines of docstrings as code, which Markdown quotes."""

import re

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n\S.*)*", re.MULTILINE)


class FencedExamples(griffe.Extension):
    """What griffe calls for each object that it has read."""

    def on_object(self, *, obj, **_):
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
