"""When rounds begin and end."""

import pytest

from tf_byteps.local_steps.meetings import QuorumSchedule
from tf_byteps.local_steps.schedule import Schedule, split
from tf_byteps.local_steps.settings import LocalSteps


def events(settings, steps, at_a_time=1):
    """(step, event, fragment) of all that is due."""
    schedule = Schedule(settings)
    return [
        (step, *event)
        for step in range(at_a_time, steps + 1, at_a_time)
        for event in schedule.advance(at_a_time)
    ]


def test_one_fragment_has_a_round_every_h_steps():
    assert events(LocalSteps(4), 9) == [
        (4, "begin", 0),
        (4, "end", 0),
        (8, "begin", 0),
        (8, "end", 0),
    ]


def test_fragments_take_turns_and_end_later():
    assert events(LocalSteps(6, fragments=3, delay=3), 12) == [
        (2, "begin", 0),
        (4, "begin", 1),
        (5, "end", 0),
        (6, "begin", 2),
        (7, "end", 1),
        (8, "begin", 0),
        (9, "end", 2),
        (10, "begin", 1),
        (11, "end", 0),
        (12, "begin", 2),
    ]


@pytest.mark.parametrize("at_a_time", [1, 3, 7])
@pytest.mark.parametrize(("steps", "fragments", "delay"), [(1, 1, 0), (5, 2, 4), (16, 16, 15)])
def test_a_round_ends_before_the_next_of_its_fragment_begins(steps, fragments, delay, at_a_time):
    found = events(LocalSteps(steps, fragments=fragments, delay=delay), 210, at_a_time)
    for fragment in range(fragments):
        its = [event for _, event, number in found if number == fragment]
        assert its[::2] == ["begin"] * len(its[::2]) and its[1::2] == ["end"] * len(its[1::2])
        begins = [step for step, event, number in found if (event, number) == ("begin", fragment)]
        # Once every H steps, and where several steps are made at a time, as often as it can be.
        assert abs(len(begins) - 210 // max(steps, at_a_time)) <= 1
    # The work of a step does not grow with the number of steps.
    assert len(found) <= 2 * fragments * (210 // max(steps, at_a_time) + 1)


def test_what_is_in_flight_is_forgotten_by_a_restart():
    schedule = Schedule(LocalSteps(4, delay=2))
    assert list(schedule.advance(4)) == [("begin", 0)] and schedule.in_flight() == [0]
    schedule.restart()
    assert schedule.in_flight() == []
    assert [list(schedule.advance()) for _ in range(4)] == [[], [], [], [("begin", 0)]]


def test_fragments_have_layers_of_all_depths():
    names = [f"layer_{layer}/{name}" for layer in range(5) for name in ("kernel", "bias")]
    assert split(names, 2) == [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7]]
    assert split(names, 1) == [list(range(10))]
    # Fewer layers than fragments: weights take turns.
    assert split(["a/kernel", "a/bias", "a/scale"], 2) == [[0, 2], [1]]
    with pytest.raises(ValueError, match="fragments is 3, but there are 2 weights"):
        split(["a/kernel", "a/bias"], 3)


class Asked:
    """The rounds of a quorum, and whether others have come to them. `requests`: by fragment."""

    def __init__(self, settings):
        self._schedule = QuorumSchedule(settings)
        self.requests = set()
        self.order = []  # of the fragments whose rounds have begun

    def advance(self, steps=1):
        found = []
        for event, fragment in self._schedule.advance(steps, lambda each: each in self.requests):
            if event == "begin":
                self.requests.discard(fragment)
                self.order.append(fragment)
            found.append((event, fragment))
        return found


@pytest.mark.parametrize("settings", [{}, {"fragments": 3, "delay": 3}, {"fragments": 6}])
def test_a_quorum_that_nobody_asks_for_has_the_same_schedule(settings):
    plain, quorum = Schedule(LocalSteps(6, **settings)), Asked(LocalSteps(6, **settings, quorum=1))
    for _ in range(60):
        assert list(plain.advance(1)) == quorum.advance()


def test_a_request_is_followed_after_the_step_and_steps_count_from_there():
    asked = Asked(LocalSteps(4, quorum=1))
    asked.requests = {0}
    assert asked.advance() == [("begin", 0), ("end", 0)]
    assert [asked.advance() for _ in range(3)] == [[], [], []]
    assert asked.advance() == [("begin", 0), ("end", 0)]


def test_requests_of_fragments_are_followed_in_the_order_of_their_turns():
    asked = Asked(LocalSteps(6, fragments=3, quorum=1))
    asked.requests = {1, 2}
    assert asked.advance() == [], "it is fragment 0's turn"
    asked.requests = {0, 1}
    assert asked.advance() == [("begin", 0), ("end", 0), ("begin", 1), ("end", 1)]
    asked.requests = {0}
    assert asked.advance() == [], "it is fragment 2's turn"
    assert asked.advance() == [("begin", 2), ("end", 2), ("begin", 0), ("end", 0)]


def test_a_round_with_a_delay_ends_when_the_next_of_its_fragment_is_asked_for():
    asked = Asked(LocalSteps(6, delay=5, quorum=1))
    asked.requests = {0}
    assert asked.advance() == [("begin", 0)]
    asked.requests = {0}
    assert asked.advance() == [("end", 0), ("begin", 0)]


@pytest.mark.parametrize("at_a_time", [1, 3, 7])
@pytest.mark.parametrize(("steps", "fragments", "delay"), [(1, 1, 0), (5, 2, 4), (16, 16, 15)])
def test_fragments_take_turns_whenever_others_come(steps, fragments, delay, at_a_time):
    asked = Asked(LocalSteps(steps, fragments=fragments, delay=delay, quorum=1))
    found = []
    for step in range(210):
        if step % 3 == 0:
            asked.requests.add(step % fragments)
        found += asked.advance(at_a_time)
    assert asked.order == [number % fragments for number in range(len(asked.order))]
    for fragment in range(fragments):
        its = [event for event, number in found if number == fragment]
        assert its[::2] == ["begin"] * len(its[::2]) and its[1::2] == ["end"] * len(its[1::2])
