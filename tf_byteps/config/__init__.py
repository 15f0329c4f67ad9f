"""The configuration of a tf_byteps process: one typed, checked and printable object.

`python -m tf_byteps.config` prints what this environment amounts to, and where each value comes
from; with `--markdown` the table of all settings.
"""

from tf_byteps.config.config import Config
from tf_byteps.config.options import OPTIONS
from tf_byteps.config.table import markdown

__all__ = ["OPTIONS", "Config", "markdown"]
