"""Kills drawn servers of a job while its workers train."""

import signal
import time


def servers(cluster, alive, moments, chance, limit, say):
    """Kills one server in the step that follows each of some steps.

    Worker 0 prints "step N." where it has made step N.

    Args:
        cluster: a `tests.cluster.Cluster`.
        alive: a list of its servers that may be killed. Those that are killed are taken out; the
            caller may add others.
        moments: the steps, ascending.
        chance: a `random.Random`, which draws the server and a pause before.
        limit: seconds until worker 0 must have made a step.
        say: called with a sentence for each kill.

    Yields:
        Each server, when it has been killed.
    """
    for moment in moments:
        cluster.workers[0].wait_for_output(f"step {moment}.", limit)
        time.sleep(chance.uniform(0, 0.02))
        victim = alive.pop(chance.randrange(len(alive)))
        victim.kill(signal.SIGKILL)
        say(f"{victim.label} is killed in step {moment + 1}")
        yield victim
