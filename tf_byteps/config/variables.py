"""The environment's variables: those that set no field of their own, and those that do nothing."""

import difflib
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from tf_byteps.config.declaring import choice
from tf_byteps.config.options import OPTIONS
from tf_byteps.config.original_variables import IGNORED
from tf_byteps.errors import ConfigError

_ENABLE_RDMA = "DMLC_ENABLE_RDMA"
_YES = ("1", "true", "yes", "on", "ibverbs")
_NO = ("0", "false", "no", "off", "zmq")
_PREFIX = "BYTEPS_"
_LIKE = 0.75  # of two names, at which one may be a misspelt other

_logger = logging.getLogger("tf_byteps")
_mentioned = set()  # variables that this process has been told about


def merge_enable_rdma(
    env: Mapping[str, str], values: dict[str, Any], sources: dict[str, str]
) -> None:
    """Reads the original's variable for RDMA, where BYTEPS_VAN does not say more."""
    given = env.get(_ENABLE_RDMA, "").strip()
    if not given or "van" in values:
        return
    kind = choice(
        "tcp", "rdma", aliases={**dict.fromkeys(_NO, "tcp"), **dict.fromkeys(_YES, "rdma")}
    )
    try:
        values["van"], sources["van"] = kind.read(given), _ENABLE_RDMA
    except ValueError:
        raise ConfigError(
            f'{_ENABLE_RDMA} is "{given}", but must be 1 (rdma) or 0 (tcp); or set BYTEPS_VAN'
        ) from None


def mention_unused_variables(env: Mapping[str, str]) -> None:
    """Warns, once per process, of variables of a job that do nothing, with the reason."""
    known = {described.variable for described in OPTIONS.values()}
    for variable in env:
        if variable in known or variable in _mentioned or not env[variable].strip():
            continue
        if reason := IGNORED.get(variable):
            _logger.warning("%s has no effect in tf_byteps: %s", variable, reason)
        elif variable.startswith(_PREFIX):
            near = _nearest(variable, known)
            hint = f"did you mean {near}?" if near else "see python -m tf_byteps.config"
            _logger.warning("there is no setting %s; %s", variable, hint)
        else:
            continue
        _mentioned.add(variable)


def _nearest(variable: str, known: Iterable[str]) -> str | None:
    """The name that is most like a variable's, or None. Prefixes, which all share, do not count."""
    by_rest = {name.partition("_")[2]: name for name in known}
    close = difflib.get_close_matches(variable.partition("_")[2], by_rest, 1, _LIKE)
    return by_rest[close[0]] if close else None
