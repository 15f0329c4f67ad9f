"""A thread that makes steps as long as there is something to do."""

import queue
import threading

import pytest

from tf_byteps.tables.background import Background


class _Steps:
    """Says when a step is made, and returns what the test says."""

    def __init__(self):
        self.made, self.answers = queue.SimpleQueue(), queue.SimpleQueue()

    def __call__(self):
        self.made.put(threading.current_thread().name)
        return self.answers.get()


@pytest.fixture
def steps():
    return _Steps()


@pytest.fixture
def background(steps):
    found = Background("of a test", steps)
    yield found
    steps.answers.put(None)
    found.end()


def test_steps_are_made_until_there_is_nothing_to_do_and_again_when_woken(steps, background):
    background.start()
    background.start()
    assert [each.name for each in threading.enumerate()].count("of a test") == 1
    for _ in range(2):
        background.wake()
        for seconds in (0.0, 0.01, None):
            assert steps.made.get() == "of a test"
            assert steps.made.empty()
            steps.answers.put(seconds)


def test_what_is_there_before_the_thread_is_done(steps, background):
    background.wake()
    background.start()
    steps.made.get()


def test_a_step_that_is_due_later_is_made_when_woken(steps, background):
    background.start()
    background.wake()
    steps.made.get()
    steps.answers.put(3600.0)
    background.wake()
    steps.made.get()


def test_no_step_is_made_after_the_end(steps, background):
    background.start()
    background.end()
    background.wake()
    background.start()
    assert "of a test" not in [each.name for each in threading.enumerate()]
    assert steps.made.empty()
