"""In which steps the rounds of each fragment begin and end. The same on all workers.

A fragment has a round every H steps. Those of several fragments are spread over the H steps, so
that the network carries one at a time.
"""

import dataclasses
from collections.abc import Hashable, Iterable, Iterator, Sequence

from tf_byteps.local_steps.settings import LocalSteps


@dataclasses.dataclass
class Schedule:
    """Which rounds are due. Not thread-safe.

    Args:
        settings: a `LocalSteps`.
    """

    settings: LocalSteps

    def __post_init__(self) -> None:
        every, fragments = self.settings.steps, self.settings.fragments
        self._step = 0
        # The last fragment's round comes where that of all would.
        self._begins = [every * (index + 1) // fragments for index in range(fragments)]
        self._ends: list[int | None] = [None] * fragments

    def advance(self, steps: int = 1) -> Iterator[tuple[str, int]]:
        """Goes on by some steps.

        Args:
            steps: how many a worker has made since the last call.

        Yields:
            What is due, in order: `("begin", fragment)` or `("end", fragment)`. A fragment of which
            several rounds are due has one.
        """
        self._step += steps
        for fragment in range(len(self._begins)):
            yield from self._due(fragment)

    def _due(self, fragment: int) -> Iterator[tuple[str, int]]:
        ends = self._ends[fragment]
        if ends is not None and self._step >= ends:
            self._ends[fragment] = None
            yield "end", fragment
        if self._step < self._begins[fragment]:
            return
        if self._ends[fragment] is not None:  # steps_per_execution went past the end and a begin
            self._ends[fragment] = None
            yield "end", fragment
        behind = self._step - self._begins[fragment]
        self._begins[fragment] += self.settings.steps * (1 + behind // self.settings.steps)
        yield "begin", fragment
        if self.settings.delay == 0:
            yield "end", fragment
        else:
            self._ends[fragment] = self._step + self.settings.delay

    def in_flight(self) -> list[int]:
        """The fragments whose round has begun and not ended."""
        return [index for index, end in enumerate(self._ends) if end is not None]

    def restart(self) -> None:
        """All fragments have come together: the next rounds are counted from here."""
        self.__post_init__()


def split(names: Sequence[str], fragments: int) -> list[list[int]]:
    """Which weights each fragment has: layers in turns, so that each has some of all depths.

    Args:
        names: of the weights, in the model's order; what is before the last "/" is the layer.
        fragments: how many.

    Returns:
        A list of indices for each fragment.

    Raises:
        ValueError: there are fewer weights than fragments.
    """
    if len(names) < fragments:
        raise ValueError(
            f"fragments is {fragments}, but there are {len(names)} weights: use fewer fragments"
        )
    layers = list(_numbers(name.rpartition("/")[0] for name in names))
    if max(layers, default=-1) + 1 < fragments:
        layers = list(range(len(names)))
    return [
        [index for index, layer in enumerate(layers) if layer % fragments == fragment]
        for fragment in range(fragments)
    ]


def _numbers(keys: Iterable[Hashable]) -> Iterator[int]:
    known: dict[Hashable, int] = {}
    for key in keys:
        yield known.setdefault(key, len(known))
