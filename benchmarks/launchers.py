"""How long launchers take from their command to the first step of a job.

    python -m benchmarks.launchers
    python -m tests.slurm python -m benchmarks.launchers      # with Slurm, on this machine

All workers run on this machine and host the servers. The time ends when the last of them has taken
its first step: it includes the start of Python, the rendezvous, and TensorFlow's start if the step
is of Keras. srun, and bpslaunch through srun, need a cluster of Slurm with this machine as a node.
mpirun and Ray are measured where they are installed. Ray's cluster runs already, as Slurm's. What
Ray itself takes is measured, too: as many actors that do nothing.
"""

import contextlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from absl import flags

from benchmarks import options, report
from benchmarks.jobs import environment
from benchmarks.measure import Runs, interleaved, ratios
from benchmarks.report import Row
from benchmarks.sessions import ROOT, BenchmarkError
from tf_byteps.rendezvous.secret import new_secret

_SECONDS = 180  # a job, at most
_MOST_SECONDS_MORE = 2.0
_PYTHON = (sys.executable, "-m")
_BPSLAUNCH, _BARE_RAY = "bpslaunch", "Ray's actors, without a job"


def commands(workers):
    """What starts so many workers, by launcher; None: it is not here."""
    number = str(workers)
    found = {_BPSLAUNCH: (*_PYTHON, "tf_byteps.launch", "--quiet", "-H", f"localhost:{number}")}
    mpirun = ("mpirun", "--oversubscribe", "--bind-to", "none", "-np", number)
    root = ("--allow-run-as-root",) if os.geteuid() == 0 else ()
    found["mpirun"] = (*mpirun, *root) if shutil.which("mpirun") else None
    in_slurm = shutil.which("srun") and "SLURM_CONF" in os.environ
    step = ("--nodes=1", f"--ntasks={number}")
    inside = ("salloc", "--quiet", *step, *_PYTHON, "tf_byteps.launch", "--quiet")
    found["srun"] = ("srun", *step) if in_slurm else None
    found["bpslaunch by srun"] = (*inside, "--scheduler-host", "127.0.0.1") if in_slurm else None
    return found


def run(workers, rounds, step, with_ray=True):
    """Rows of each launcher's time, and of how much longer it takes than bpslaunch.

    Args:
        workers: their number.
        rounds: how often each launcher starts a job; they take turns.
        step: a name in `benchmarks.programs.first_step.STEPS`.
        with_ray: whether Ray is measured, if it is installed.
    """
    case = f"{workers} workers, first step: {step}, load {os.getloadavg()[0]:.1f} before"
    found = commands(workers)
    with contextlib.ExitStack() as stack:
        competitors = {
            name: lambda command=command: _time(_with_program(command, step), workers)
            for name, command in found.items()
            if command is not None
        }
        found["Ray"] = found[_BARE_RAY] = None
        if with_ray and importlib.util.find_spec("ray"):
            competitors |= _ray(stack, workers, step)
        with report.progress() as bar:
            task = bar.add_task("launchers", total=(rounds + 1) * len(competitors))
            for measure in competitors.values():  # once for caches
                measure()
                bar.advance(task)
            times = interleaved(rounds, "s", competitors, lambda: bar.advance(task))
    rows = []
    for name in found:
        figure = f"{name}: command to first step"
        if name not in times:
            rows.append(
                Row(figure, case, None, note="not installed, without a cluster, or left out")
            )
            continue
        rows.append(Row(figure, case, times[name]))
        if name not in (_BPSLAUNCH, _BARE_RAY):
            rows += _against_bpslaunch(name, case, times)
    return rows


def _against_bpslaunch(name, case, times):
    own, base = times[name], times[_BPSLAUNCH]
    pairs = zip(own.values, base.values, strict=True)
    more = Runs(tuple(a - b for a, b in pairs), "s")
    return [
        Row(f"{name}: more than bpslaunch", case, more, ("<=", _MOST_SECONDS_MORE)),
        Row(f"{name} against bpslaunch", case, ratios(own, base)),
    ]


def _with_program(command, step):
    def build(folder):
        return [*command, *_PYTHON, "benchmarks.programs.first_step", folder, step]

    return build


def _ray(stack, workers, step):
    """Starts a cluster of Ray, which ends with the stack; returns what measures it, by name."""
    program = (*_PYTHON, "benchmarks.programs.first_step_on_ray")
    serving = stack.enter_context(
        subprocess.Popen(
            [*program, "serve", str(workers)],
            cwd=ROOT,
            env=environment(RAY_USAGE_STATS_ENABLED="0"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    )
    address = serving.stdout.readline().strip()
    if not address:
        raise BenchmarkError("Ray's cluster does not start")

    def measure(what):
        command = (*program, what, str(workers))
        return lambda: _time(lambda folder: [*command, folder, step], workers, RAY_ADDRESS=address)

    return {"Ray": measure("launch"), _BARE_RAY: measure("bare")}


def _time(build, workers, **variables):
    """Seconds from the start of a command to the last worker's first step."""
    with tempfile.TemporaryDirectory(prefix="tf_byteps_bench_") as folder:
        command = build(folder)
        given = environment(BYTEPS_JOB_SECRET=new_secret(), **variables)
        begin = time.monotonic()
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=given,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"{command[0]} has not ended in {_SECONDS} s") from None
        steps = [float(file.read_text()) for file in pathlib.Path(folder).iterdir()]
        if done.returncode != 0 or len(steps) != workers:
            said = (done.stderr or done.stdout)[-2000:]
            raise BenchmarkError(f"{' '.join(command)}: {len(steps)} steps:\n{said}")
        return max(steps) - begin


def main():
    given = flags.FLAGS
    rows = run(given.workers, given.rounds, given.step, not given["without-ray"].value)
    return report.publish(
        f"launchers_{given.step}", "From a launcher's command to the first step", rows
    )


if __name__ == "__main__":
    flags.DEFINE_integer("rounds", 5, "starts by each launcher", lower_bound=1)
    flags.DEFINE_integer("workers", 4, "of each job", lower_bound=1)
    flags.DEFINE_enum("step", "exchange", ["exchange", "keras"], "what a worker does")
    flags.DEFINE_bool("without-ray", False, "its cluster takes a GB")
    options.run(main)
