"""Work in rendezvous does not grow with the number of participants (protocol rule 30).

Work is counted, not timed: the interpreter's instructions, messages, and copies of the book.
"""

import sys
import threading

import pytest
import zmq

from tests.cluster import wait_until
from tf_byteps.config import Config
from tf_byteps.rendezvous import client, messages
from tf_byteps.rendezvous.messages import Address
from tf_byteps.rendezvous.scheduler import Scheduler

# What waits for messages runs more or less often, whatever comes.
_WAITING = {"_wait", "_serve", "_poll", "poll", "_look_for_silent", "_drop_silent"}


class Instructions:
    """Counts the interpreter's instructions in this thread, but not those of waiting."""

    def __enter__(self):
        self.count = 0
        sys.settrace(self._enter_function)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    def _enter_function(self, frame, event, argument):
        if frame.f_code.co_name in _WAITING:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame, event, argument):
        self.count += event == "opcode"
        return self._step


class Participants(threading.Thread):
    """n workers that host servers, each with a connection of its own, in one thread."""

    def __init__(self, number, address):
        super().__init__()
        self._number, self._address = number, address
        self.received = 0
        self.books = 0

    def run(self):
        context = zmq.Context()
        context.set(zmq.MAX_SOCKETS, self._number + 16)
        poller, names = zmq.Poller(), {}
        for rank in range(self._number):
            line = context.socket(zmq.DEALER)
            line.connect(f"tcp://{self._address}")
            config = Config(
                scheduler_host="h", scheduler_port=1, global_rank=rank, global_size=self._number
            )
            request = client._request(config, Address(f"host-{rank}", 4000))
            names[line] = request.participant
            line.send(messages.encode(request))
            poller.register(line, zmq.POLLIN)
        done = 0
        while done < self._number:
            for line, _ in poller.poll():
                message = messages.decode(line.recv())
                self.received += 1
                if isinstance(message, messages.Assigned):
                    self.books += message.book is not None
                    line.send(messages.encode(messages.Ready(names[line], message.stage)))
                    done += message.stage == "worker"
        context.destroy(linger=5000)


def rendezvous_of(number):
    """What the scheduler does for each participant, and what that gets."""
    config = Config(
        role="scheduler", scheduler_host="127.0.0.1", scheduler_port=0, global_size=number
    )
    scheduler = Scheduler(config, lambda book: Address("127.0.0.1", 1))
    participants = Participants(number, scheduler.address)
    participants.start()
    try:
        with Instructions() as instructions:
            scheduler.run()
    finally:
        participants.join()
        scheduler.close()
    return [
        count / number for count in (instructions.count, participants.received, participants.books)
    ]


@pytest.mark.time_limit(600)
def test_work_for_each_participant_is_flat():
    few, some, many = (rendezvous_of(number) for number in (64, 256, 1024))
    assert some[0] < 1.5 * few[0] and many[0] < 1.5 * few[0], (few, some, many)
    for _, received, books in (few, some, many):
        assert received == 3  # progress, and an assignment for each stage
        assert books == 1


def test_who_has_a_place_asks_rarely():
    config = Config(
        role="scheduler", scheduler_host="127.0.0.1", scheduler_port=0, global_size=2,
        heartbeat_interval=30.0, heartbeat_timeout=90.0,
    )  # fmt: skip
    scheduler = Scheduler(config, lambda book: Address("127.0.0.1", 1))
    requests = []
    admit = scheduler._roster.admit
    scheduler._roster.admit = lambda join, *details: (
        requests.append(join.rank) or admit(join, *details)
    )
    workers = [
        threading.Thread(target=client.join, args=[config.replace(role="worker", **place)])
        for place in (
            {"global_rank": rank, "scheduler_port": scheduler.address.port} for rank in (0, 1)
        )
    ]
    running = threading.Thread(target=scheduler.run)
    running.start()
    workers[0].start()
    wait_until(lambda: requests)
    workers[0].join(2.5)  # twice as long as one that has no place waits
    assert requests == [0]
    workers[1].start()
    for thread in (running, *workers):
        thread.join(60)
    scheduler.close()
    assert sorted(requests) == [0, 1]
