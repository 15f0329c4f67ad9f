"""How long n processes take to find each other, and what it costs the scheduler.

    python -m benchmarks.rendezvous --participants 1024

The scheduler is a process of its own, the participants are threads of this one, and the job has a
secret. Each participant is a worker that hosts a server, on a host of its own, but no engine runs.
"""

import concurrent.futures
import gc
import json
import os
import resource
import subprocess
import sys
import threading
import time

from absl import flags

from benchmarks import options
from tf_byteps.config import Config
from tf_byteps.rendezvous import client
from tf_byteps.rendezvous.messages import Address
from tf_byteps.rendezvous.scheduler import Scheduler
from tf_byteps.rendezvous.secret import new_secret

_PARTICIPANTS = flags.DEFINE_integer("participants", 1024, "processes", lower_bound=1)
_SCHEDULER = flags.DEFINE_integer("scheduler", 0, "internal: be the scheduler of so many")

_STACK_BYTES = 256 << 10


def measure(participants):
    """Brings a job together.

    Returns:
        A dict: seconds until all had the address book ("wall"), and processor seconds of the
        scheduler ("scheduler_cpu") and of all participants ("participants_cpu").
    """
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    threading.stack_size(_STACK_BYTES)
    # What n interpreters in one process cost is not measured: a look at all books for garbage, and
    # threads that wake up 200 times a second to ask for the interpreter.
    gc.disable()
    sys.setswitchinterval(1.0)
    secret = new_secret()
    scheduler = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.rendezvous", "--scheduler", str(participants)],
        env={**os.environ, "BYTEPS_JOB_SECRET": secret},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        port = int(scheduler.stdout.readline())
        begin, cpu = time.monotonic(), time.process_time()

        def join(rank):
            config = Config(
                scheduler_host="127.0.0.1",
                scheduler_port=port,
                global_rank=rank,
                global_size=participants,
                host_id=f"host {rank}",
                job_secret=secret,
            )
            endpoint = Address(f"10.{rank >> 16}.{rank >> 8 & 255}.{rank & 255}", 4000)
            return client.join(config, endpoint, lambda book, number: None)[1]

        with concurrent.futures.ThreadPoolExecutor(participants) as threads:
            ranks = list(threads.map(join, range(participants)))
        assert ranks == list(range(participants))
        wall, cpu = time.monotonic() - begin, time.process_time() - cpu
        return {"wall": wall, "participants_cpu": cpu, **json.loads(scheduler.stdout.readline())}
    finally:
        scheduler.wait(60)


def _run_scheduler(participants):
    config = Config(
        role="scheduler",
        scheduler_host="127.0.0.1",
        scheduler_port=0,
        global_size=participants,
        job_secret=os.environ["BYTEPS_JOB_SECRET"],
    )
    scheduler = Scheduler(config, lambda book: Address("127.0.0.1", 4000))
    print(scheduler.address.port, flush=True)
    cpu = time.process_time()
    scheduler.run()
    scheduler.close()
    print(json.dumps({"scheduler_cpu": time.process_time() - cpu}), flush=True)


def main():
    if _SCHEDULER.value:
        _run_scheduler(_SCHEDULER.value)
    else:
        for name, seconds in measure(_PARTICIPANTS.value).items():
            print(f"{name:18} {seconds:7.2f} s")
    return True


if __name__ == "__main__":
    options.run(main)
