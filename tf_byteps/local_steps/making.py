"""Makes the outer rounds that a training's settings ask for."""

from typing import Any

from tf_byteps.local_steps.quorum import QuorumRounds
from tf_byteps.local_steps.rounds import Rounds


def rounds_of(names: Any, variables: Any, settings: Any, *args: Any) -> Rounds:
    """The rounds of a training, see `Rounds`.

    Args:
        names: of the weights.
        variables: the weights.
        settings: a `LocalSteps`.
        *args: the other arguments of `Rounds`.
    """
    kind = Rounds if settings.quorum is None else QuorumRounds
    return kind(names, variables, settings, *args)
