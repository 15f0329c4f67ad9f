"""What a process is, where it listens, and whom it lets in."""

from __future__ import annotations

import dataclasses

from tf_byteps.config.declaring import ENGINE, choice, flag, option, port_range, text, whole
from tf_byteps.environments.place import MAX_PORT


@dataclasses.dataclass(frozen=True)
class ProcessOptions:
    """See `Options`."""

    role: str = option(
        "worker",
        "DMLC_ROLE",
        choice("worker", "server", "scheduler", "evaluator"),
        "What this process is. An evaluator is the only worker of a job of its own.",
    )
    scheduler_host: str | None = option(
        None, "DMLC_PS_ROOT_URI", text(), "Name or address at which the scheduler is reached."
    )
    scheduler_port: int | None = option(
        None,
        "DMLC_PS_ROOT_PORT",
        whole(0, MAX_PORT),
        "The scheduler's port. 0, for the scheduler only: any free one.",
    )
    num_worker_machines: int = option(
        1, "DMLC_NUM_WORKER", whole(1), "Number of machines that run workers."
    )
    worker_id: int | None = option(
        None,
        "DMLC_WORKER_ID",
        whole(0),
        "This worker machine's number, from 0.",
        default_text="the scheduler assigns the rank",
    )
    num_servers: int = option(
        0, "DMLC_NUM_SERVER", whole(0), "Number of server processes, without colocated servers."
    )
    server_id: int | None = option(
        None,
        "BYTEPS_SERVER_ID",
        whole(0),
        "This server's rank among the server processes.",
        default_text="ordered by address",
        listed=False,
    )
    local_rank: int = option(
        0, "BYTEPS_LOCAL_RANK", whole(0), "This worker's number on its machine, from 0."
    )
    local_size: int = option(
        1, "BYTEPS_LOCAL_SIZE", whole(1), "Number of workers on this machine (one for each GPU)."
    )
    global_rank: int | None = option(
        None,
        "BYTEPS_GLOBAL_RANK",
        whole(0),
        "This worker's rank in the job; for machines with different numbers of workers.",
        default_text="DMLC_WORKER_ID x BYTEPS_LOCAL_SIZE + BYTEPS_LOCAL_RANK",
        listed=False,
    )
    global_size: int | None = option(
        None,
        "BYTEPS_GLOBAL_SIZE",
        whole(1),
        "Number of workers in the job.",
        default_text="DMLC_NUM_WORKER x BYTEPS_LOCAL_SIZE",
        listed=False,
    )
    colocated_server: bool | None = option(
        None,
        "BYTEPS_COLOCATED_SERVER",
        flag(),
        "Whether this worker's process also runs a server.",
        default_text="yes, unless there are server processes",
    )
    colocated_scheduler: bool | None = option(
        None,
        "BYTEPS_COLOCATED_SCHEDULER",
        flag(),
        "Whether this worker's process also runs the scheduler.",
        default_text="no; with TF_CONFIG: yes in the first worker",
        listed=False,
    )
    force_distributed: bool = option(
        False,
        "BYTEPS_FORCE_DISTRIBUTED",
        flag(),
        "Go through a server even with one worker.",
        listed=False,
    )
    node_host: str | None = option(
        None,
        "DMLC_NODE_HOST",
        text(),
        "Address of this machine at which the others reach it.",
        default_text="the address that routes to the scheduler",
    )
    interface: str | None = option(
        None, "DMLC_INTERFACE", text(), "Network interface whose address is used, such as eth0."
    )
    server_port: int = option(
        0, "BYTEPS_SERVER_PORT", whole(0, MAX_PORT), "Port of this process's server. 0: any free."
    )
    ports: str | None = option(
        None,
        "BYTEPS_PORTS",
        port_range(),
        "Where no other setting names a port, a process listens at the first free one of these, "
        "such as 20000-20063. bpslaunch --ports.",
        default_text="any free ones",
    )
    host_id: str | None = option(
        None,
        "BYTEPS_HOST_ID",
        text(200),
        "Processes with the same text count as being on one machine.",
        default_text="boot id and network namespace",
        listed=False,
    )
    one_machine: bool = option(
        False,
        "BYTEPS_ONE_MACHINE",
        flag(),
        "All processes of the job are on this machine: where its name stands for a loopback "
        "address, they meet there.",
        default_text="yes if the launcher says so, as TF_CONFIG with one host does",
        listed=False,
    )
    job_id: str | None = option(
        None,
        "BYTEPS_JOB_ID",
        text(64),
        "Tells jobs apart: processes with another text are refused.",
        default_text="drawn by the scheduler",
        listed=False,
    )
    job_secret: str | None = option(
        None,
        "BYTEPS_JOB_SECRET",
        text(minimum=16),
        "Known to all processes of the job and to nobody else: others are refused (see "
        "[security](security.md)).",
        default_text="none; bpslaunch makes one",
        hidden=True,
    )
    job_secret_file: str | None = option(
        None,
        "BYTEPS_JOB_SECRET_FILE",
        text(),
        "A file with the secret, instead of BYTEPS_JOB_SECRET.",
    )
    allow_open: bool = option(
        False,
        "BYTEPS_ALLOW_OPEN",
        flag(),
        "Allows a job without a secret to listen at addresses that other machines can reach. "
        "Anyone there can then join the job, read its weights or end it.",
    )
    tls: bool = option(
        ENGINE.security.tls,
        "BYTEPS_TLS",
        flag(),
        "All that processes of the job send to each other is encrypted, with TLS 1.3 and keys that "
        "follow from the job's secret (see [security](security.md)). bpslaunch --tls.",
        shared=True,
    )
