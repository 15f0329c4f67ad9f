"""Settings that must be the same in all processes of a job: what was set where, and what holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tf_byteps.config import Config
from tf_byteps.errors import ConfigError
from tf_byteps.rendezvous.messages import Join
from tf_byteps.rendezvous.participant import Participant, Refusal

_SAME_EVERYWHERE = "set it to the same value everywhere, or in one process only"
# What else to do about a setting that differs.
_ADVICE = {
    "deterministic": "call tf.config.experimental.enable_op_determinism() on all workers or on "
    "none before tf_byteps starts, or set BYTEPS_DETERMINISTIC to one value everywhere",
    "tls": "set BYTEPS_TLS to the same value everywhere",
}


class SharedSettings:
    """What the processes of a job agree on, one after the other.

    Args:
        options: the shared options that were set for the scheduler, by `Config` field.
        defaults: all shared options, for those that nobody set.
    """

    def __init__(self, options: Mapping[str, float], defaults: Mapping[str, float]) -> None:
        self._options = {name: (value, "the scheduler") for name, value in options.items()}
        self._defaults = defaults
        self._usable = {}

    def check_usable(self, join: Join) -> None:
        """Refuses values that the process's own configuration would refuse.

        Raises:
            Refusal: it has such.
        """
        if join.options == self._usable:  # commonly all have the same ones
            return
        known = {name: value for name, value in join.options.items() if name in self._defaults}
        try:
            Config().with_shared_values(known, join.process)
        except ConfigError as error:
            raise Refusal(f"its settings cannot be used: {error}") from None
        self._usable = join.options

    def agree(self, participant: Participant) -> None:
        """Takes over what was set for a process.

        Raises:
            Refusal: another one has it differently, or it is no option of a job.
        """
        for name, value in participant.join.options.items():
            if name not in self._defaults:
                raise Refusal(f"it wants to set {name!r}, which is not an option of a job")
            agreed, owner = self._options.get(name, (value, ""))
            if agreed != value:
                raise Refusal(
                    f"its {name} is {value} but that of {owner} is {agreed}: "
                    f"{_ADVICE.get(name, _SAME_EVERYWHERE)}"
                )
        for name, value in participant.join.options.items():
            self._options.setdefault(name, (value, str(participant)))

    def values(self, connections_per_server: Callable[[], int]) -> dict[str, float]:
        """All of them, by `Config` field.

        Args:
            connections_per_server: chooses that number if nobody has set it.
        """
        options = dict(self._defaults)
        options.update({name: value for name, (value, _) in self._options.items()})
        if not options.get("connections_per_server"):
            options["connections_per_server"] = connections_per_server()
        return options
