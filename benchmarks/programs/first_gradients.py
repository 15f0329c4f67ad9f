"""How long a step computes before it has something to send, by a worker's timeline."""

import collections


def steps_of(parts):
    """The parts of each step: a list of lists.

    Args:
        parts: of `tf_byteps.timeline.read`, of tensors that each step exchanges once.
    """
    began = {part.tensor: part.round for part in reversed(sorted(parts, key=lambda p: p.round))}
    by_step = collections.defaultdict(list)
    for part in parts:
        by_step[part.round - began[part.tensor]].append(part)
    return [by_step[number] for number in range(len(by_step))]


def seconds_to_first(steps):
    """Seconds from the end of a step's last exchange to the next one's first gradient, of each."""
    seconds = []
    for before, step in zip(steps, steps[1:], strict=False):
        begin = max(part.done for part in before)
        # On CPUs a gradient is there when it is handed to the engine.
        ready = min(part.computed or part.enqueued for part in step)
        seconds.append(max(0, ready - begin) / 1e9)
    return seconds
