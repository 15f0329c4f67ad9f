"""Exchanges the norms of gradients while a compiled step goes on with backpropagation.

Some codecs send a gradient in units of norms that all workers share (shared_norms.py), which takes
a round trip before anything of the gradient can leave. If all norms were exchanged together, no
gradient would leave before the last one has been computed. So layers form groups: the norms of a
group travel while the next group is computed. After that the gradients of the group start.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

import tensorflow as tf

from tf_byteps.ops.compiled.start_scheduling import Start
from tf_byteps.ops.compression import shared_norms

# More of them let the first gradient leave earlier, and each can hold up backpropagation for a
# round trip.
_GROUPS = 8


class PipelinedNorms:
    """The norms of a step's gradients, and those gradients that have started with them.

    Args:
        places: in the list of gradients, of those that need shared norms.
        start: starts gradients, as of `start_scheduling.started_first`.
        start_norms: the same for norms.
        end_norms: makes the operation that ends exchanges of norms; gets their places and values.
    """

    def __init__(
        self,
        places: Collection[int],
        start: Start,
        start_norms: Start,
        end_norms: Callable[[list[int], list[tf.Tensor]], Sequence[tf.Tensor]],
    ) -> None:
        self._places = frozenset(places)
        self._start = start
        self._start_norms = start_norms
        self._end_norms = end_norms
        self._in_group = -(-len(self._places) // _GROUPS)
        self._norms: dict[int, tf.Tensor] = {}  # of all workers
        self._own: dict[int, tf.Tensor] = {}  # of this worker, started
        self._before: dict[int, tf.Tensor] = {}  # gradients whose norms travel
        self._group: dict[int, tf.Tensor] = {}  # gradients of the group that is being computed
        self._started: dict[int, tf.Tensor] = {}  # gradients in units of their norms

    @property
    def is_needed(self) -> bool:
        """Whether any gradient needs norms."""
        return bool(self._places)

    def start(
        self, numbers: list[int], values: list[tf.Tensor], passed: list[tf.Tensor]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Starts gradients or their norms, and gradients whose norms have come: a `Start`."""
        needing = [
            (i, value) for i, value in zip(numbers, values, strict=True) if i in self._places
        ]
        if not needing:
            return self._start(numbers, values, passed)
        places = [i for i, _ in needing]
        own = [shared_norms.own(value) for _, value in needing]
        norms, passed = self._start_norms(places, own, passed)
        self._own.update(zip(places, norms, strict=True))
        self._group.update(zip(numbers, values, strict=True))
        if len(self._places & self._group.keys()) >= self._in_group:
            passed = self._start_group_before(passed)
        return values, passed

    def _start_group_before(self, passed: list[tf.Tensor]) -> list[tf.Tensor]:
        group, self._before, self._group = self._before, self._group, {}
        if not group:
            return passed
        # Compiled after the latest start, which it thus comes after (cc/tf/xla_kernels.cc).
        with tf.control_dependencies([passed[0].op]):
            self._end_norms_of(group)
        values = [self._in_units(i, value) for i, value in group.items()]
        same, passed = self._start(list(group), values, passed)
        self._started.update(zip(group, same, strict=True))
        return passed

    def finish(
        self, gradients: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], dict[int, tf.Tensor]]:
        """All gradients, to be exchanged in one operation, and by place the norms of which some
        are in units."""
        self._end_norms_of(dict(enumerate(gradients)))
        values = [
            self._started[i] if i in self._started else self._in_units(i, gradient)
            for i, gradient in enumerate(gradients)
        ]
        return values, self._norms

    def _end_norms_of(self, gradients: Mapping[int, tf.Tensor]) -> None:
        places = [i for i in gradients if i in self._places and i not in self._norms]
        if not places:
            return
        own = [self._own[i] if i in self._own else shared_norms.own(gradients[i]) for i in places]
        self._norms.update(zip(places, self._end_norms(places, own), strict=True))

    def _in_units(self, place: int, value: tf.Tensor) -> tf.Tensor:
        if place not in self._norms:
            return value
        return shared_norms.divided(value, self._norms[place])
