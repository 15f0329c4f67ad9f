"""Workers that leave `fit` by an exception, and meet again in the next one.

With a strategy they also meet in an `evaluate` or `predict` outside of `fit`, and leave it so.

The others wait for who has left, at exchanges of the training that are not known here. So it gives
up all rounds that these could yet have in the training: the others leave `fit`, too, by an error
that names it and its exception. They give up the same. Should their programs catch it, all go on at
the same rounds, and no loop of theirs meets what is left of the training.

A process that ends by the exception needs none of this, and should be the first to fail: so the
others learn of it a little later, or when this one begins its next exchange.
"""

import atexit
import contextlib
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from tf_byteps import _engine, runtime
from tf_byteps.errors import is_on_all_workers, on_all_workers
from tf_byteps.exchange.object_gather import gather_objects

_MEETING = "callbacks"  # see `meet`
_ROUNDS = "rounds after an error"
# The exchanges in which workers meet are not given up.
_KEPT = {name + rest for name in (_MEETING, _ROUNDS) for rest in ("", "/sizes")}

_PYTHONS = re.compile(r"(?:^|\s)((?:\w+\.)*\w+(?:Error|Exception): .+)")
_AROUND = re.compile(
    r"\s|Graph execution error|Detected at node|<stack|\d+ root error|Traceback"
    r"|Exception encountered when calling "
)
_BOLD = re.compile(r"\x1b\[\d*m")
_MOST_LETTERS = 300

_SECONDS = 3.0  # from the exception until the others learn of it, unless this process goes on

_timer: threading.Timer | None = None
_of_trainings = set()  # names of exchanges that were used or announced in trainings
_has_left = False


def meet(facts: Any, method: str = "fit") -> tuple[list[Any], bool]:
    """Begins a training: lets all workers know of each other's. A collective.

    Args:
        facts: what `json` can write.
        method: of the model, which is called: an evaluation or a prediction begins so, too.

    Returns:
        A list of each worker's `facts`, in rank order, and whether one of them has left its last
        training by an exception: then updates of its last step may be done on some workers only.

    Raises:
        ValueError: on all workers, if they do not call the same method.
    """
    global _has_left
    everyone = gather_objects(_MEETING, [facts, _has_left, method])
    for rank, (_, _, other) in enumerate(everyone):
        if other != everyone[0][2]:
            raise on_all_workers(
                ValueError(
                    f"worker 0 calls {everyone[0][2]}, worker {rank} calls {other}: all workers "
                    "must call the same methods of a model, in the same order"
                )
            )
    after_failure = any(has_left for _, has_left, _ in everyone)
    if after_failure:
        go_on_together()
    _has_left = _has_left and method != "fit"
    return [other for other, _, _ in everyone], after_failure


def go_on_together() -> None:
    """Lets the next exchange of each tensor have one round on all workers. A collective."""
    known = {name: n for name, n in _engine.next_rounds().items() if name not in _KEPT}
    highest = {}
    for rounds in gather_objects(_ROUNDS, known):
        for name, number in rounds.items():
            highest[name] = max(number, highest.get(name, 0))
    _engine.skip_to_rounds(highest)


@contextlib.contextmanager
def telling_the_others(method: str = "fit") -> Iterator[None]:
    """Around all of a training: an exception that ends it here ends it on all workers.

    Args:
        method: of the model, which is called: see `meet`.
    """
    global _has_left
    before = _engine.next_rounds()
    try:
        yield
    except BaseException as error:
        exchanged = _note_names(before)
        if is_on_all_workers(error) or not exchanged:
            raise
        if runtime.is_initialized() and runtime.size() > 1:
            _has_left = True
            _leave(f"its {method} failed with {type(error).__name__}: {cause_in(str(error))}")
        raise
    _note_names(before)


def cause_in(message: str) -> str:
    """The line of an error's message that says what has happened, of at most 300 characters.

    The first one, but TensorFlow puts others before it: that it was in a graph, and where. So does
    Keras: in which layer. It prints the line itself in bold.
    """
    message = _BOLD.sub("", message)
    lines = message.splitlines()
    for line in lines if _AROUND.match(message) else []:
        if raised := _PYTHONS.search(line):
            return raised[1][:_MOST_LETTERS]
    said = [line for line in lines if line.strip() and not _AROUND.match(line)]
    return (said or lines or [""])[0].strip()[:_MOST_LETTERS]


def _leave(reason: str) -> None:
    global _timer
    rounds = _engine.next_rounds()
    names = _of_trainings & rounds.keys() - _KEPT  # in this session
    # All have begun as many trainings together as they have met.
    _engine.leave(sorted(names), rounds.get(_MEETING, 0), reason)
    _end_timer()
    _timer = threading.Timer(_SECONDS, _engine.tell_left)
    _timer.daemon = True
    _timer.start()


def _end_timer() -> None:
    if _timer is not None:
        _timer.cancel()


atexit.register(_end_timer)


def _note_names(before: Mapping[str, int]) -> set[str]:
    """The names that were used since; notes them."""
    names = {name for name, number in _engine.next_rounds().items() if before.get(name) != number}
    _of_trainings.update(names)
    return names
