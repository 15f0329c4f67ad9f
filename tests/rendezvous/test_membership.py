"""Rendezvous of elastic jobs, epoch after epoch, without an engine."""

import concurrent.futures
import contextlib

from tests.cluster import wait_until
from tf_byteps.config import Config
from tf_byteps.rendezvous import client
from tf_byteps.rendezvous.member import Member
from tf_byteps.rendezvous.membership import ElasticScheduler
from tf_byteps.rendezvous.messages import Address

_SETTINGS = {
    "scheduler_host": "127.0.0.1",
    "min_workers": 1,
    "num_servers": 0,
    "heartbeat_interval": 100.0,  # nobody asks again in a test's time
    "heartbeat_timeout": 400.0,
}


def test_who_has_asked_before_the_last_epoch_was_over_need_not_ask_again(monkeypatch):
    monkeypatch.setattr(client, "_JOIN_SECONDS", 100.0)
    config = Config(role="scheduler", scheduler_port=0, global_size=2, **_SETTINGS)
    scheduler = ElasticScheduler(config, lambda book: Address("127.0.0.1", 4321))
    port = scheduler.address.port
    with contextlib.ExitStack() as stack:
        stack.callback(scheduler.close)
        threads = stack.enter_context(concurrent.futures.ThreadPoolExecutor(8))

        def member(name):
            own = Config(role="worker", scheduler_port=port, member=name, **_SETTINGS)
            connection = Member(own)
            stack.callback(connection.close)
            return lambda: threads.submit(client.join, own, member=name)

        joins = [member(name) for name in ("0", "1", "2")]
        first = [join() for join in joins[:2]]
        scheduler.run()
        assert sorted(each.result(20)[1] for each in first) == [0, 1]
        second = [join() for join in joins]
        # What the scheduler does while the epoch lasts.
        wait_until(lambda: scheduler.attend(0.05) or len(scheduler._waiting) == 3)
        book = scheduler.run()
        assert len(book.worker_hosts) == 3, "the newcomer, too"
        assert sorted(each.result(20)[1] for each in second) == [0, 1, 2]
        assert not scheduler._waiting
