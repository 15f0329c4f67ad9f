"""The table of all settings: one field each, with its variable, its values and its meaning."""

from __future__ import annotations

import dataclasses

from tf_byteps.config.exchange_options import ExchangeOptions
from tf_byteps.config.fault_options import FaultOptions
from tf_byteps.config.process_options import ProcessOptions
from tf_byteps.config.report_options import ReportOptions


# The last base's fields are the first ones.
@dataclasses.dataclass(frozen=True)
class Options(ReportOptions, FaultOptions, ExchangeOptions, ProcessOptions):
    """The fields of `tf_byteps.Config`, in the order in which they are printed."""


FIELDS = {f.name: f for f in dataclasses.fields(Options)}
OPTIONS = {name: f.metadata["option"] for name, f in FIELDS.items()}
