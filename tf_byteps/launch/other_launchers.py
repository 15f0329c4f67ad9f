"""Options of other launchers, and what takes their place here."""

import re

_WORKERS = "-np, the number of all workers"
_HOSTS = "-H host1:4,host2:4"
_ONE_COMMAND = "nothing: one bpslaunch starts the workers on all hosts"
_ADDRESS = "--scheduler-host, which is seldom needed"
_PORT = "--ports, or DMLC_PS_ROOT_PORT for the scheduler's"
_NOTHING = "nothing: parts of tensors and their number in flight tune themselves"
_PROGRAM = "the program's: this is set in Keras"
_FILE = "--config"
_ELASTIC = "--min-np and --max-np"
_STALL = "BYTEPS_STALL_WARNING_SECONDS and --stall-shutdown-seconds"
_GPUS = "CUDA_VISIBLE_DEVICES: each worker gets a GPU of its own"
_START = "BYTEPS_RENDEZVOUS_TIMEOUT"

# By the option's letters, without dashes and underscores.
_HERE = {
    # torchrun
    "nprocpernode": _WORKERS,
    "nnodes": f"{_HOSTS}; for a number that changes {_ELASTIC}",
    "noderank": _ONE_COMMAND,
    "standalone": "nothing: without -H all workers are on this host",
    "rdzvbackend": "nothing: bpslaunch has a scheduler of its own",
    "rdzvid": "nothing: bpslaunch has a scheduler of its own",
    "rdzvconf": "nothing: bpslaunch has a scheduler of its own",
    "rdzvendpoint": _ADDRESS,
    "masteraddr": _ADDRESS,
    "masterport": _PORT,
    "maxrestarts": "--min-np: an elastic job starts workers again",
    "redirects": "--log-dir",
    "tee": "--log-dir",
    "localranksfilter": "--show",
    "nopython": "nothing: the command is started as it is",
    # accelerate
    "numprocesses": _WORKERS,
    "nummachines": _HOSTS,
    "machinerank": _ONE_COMMAND,
    "mainprocessip": _ADDRESS,
    "mainprocessport": _PORT,
    "configfile": _FILE,
    "multigpu": _GPUS,
    "gpuids": _GPUS,
    "cpu": "CUDA_VISIBLE_DEVICES=-1",
    "mixedprecision": _PROGRAM,
    "gradientaccumulationsteps": _PROGRAM,
    # horovodrun
    "numproc": _WORKERS,
    "minnumproc": "--min-np",
    "maxnumproc": "--max-np",
    "slots": "--slots-per-host",
    "outputfilename": "--log-dir",
    "prefixoutputwithtimestamp": "--timestamps",
    "timelinefilename": "--timeline",
    "networkinterfaces": "--network-interface",
    "nics": "--network-interface",
    "blacklistcooldownrange": "--host-failures",
    "checkbuild": "bpslaunch doctor",
    "starttimeout": _START,
    "gloo": "nothing: gradients go through servers",
    "usegloo": "nothing: gradients go through servers",
    "mpi": "nothing: gradients go through servers",
    "usempi": "nothing: gradients go through servers",
    "mpiargs": "nothing: gradients go through servers",
    "loglevel": "BYTEPS_LOG_LEVEL",
    "fusionthresholdmb": _NOTHING,
    "cycletimems": _NOTHING,
    "cachecapacity": _NOTHING,
    "disablecache": _NOTHING,
    "autotune": _NOTHING,
    "hierarchicalallreduce": "nothing: the GPUs of a host reduce among themselves first",
    "nostallcheck": _STALL,
    "stallcheckwarningtimeseconds": _STALL,
    "stallcheckshutdowntimeseconds": _STALL,
    # mpirun, deepspeed
    "x": "--env NAME, or --env NAME=VALUE",
    "bindto": "nothing: a worker with a GPU runs on the processors beside it",
    "numgpus": _WORKERS,
    "numnodes": _HOSTS,
    "include": _HOSTS,
}
_UNKNOWN = re.compile(r"unrecognized arguments: (--?[\w-]+)")


def answer(message: str) -> str:
    """What argparse says of wrong arguments; of another launcher's option, what to give instead."""
    found = _UNKNOWN.match(message)
    here = _HERE.get(re.sub(r"[-_]", "", found[1])) if found else None
    if found is None or here is None:
        return message
    return f"{found[1]} is another launcher's option; in its place bpslaunch has {here}"
