"""Containers by podman, with storage of their own, and the pods of a job as containers."""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile

from tests.cluster import Process

_STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
"""
# Limits stay those of this process: a machine may not allow to raise them.
_CONFIGURATION = """\
[containers]
default_ulimits = []
[network]
network_config_dir = "{folder}/networks"
[engine]
runtime = "runc"
"""
_NETWORK = "tf-byteps-test"
_SUBNET = "10.89.77"
_SECONDS = 300


class Podman:
    """Podman, with what it stores in one folder.

    Attributes:
        environment: variables with which `podman` uses that folder.
        base: the image from which others are made.
    """

    base = "localhost/tf_byteps-base:test"

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        files = {"CONTAINERS_STORAGE_CONF": "storage.conf", "CONTAINERS_CONF": "containers.conf"}
        self.environment = {**os.environ, **{k: str(folder / v) for k, v in files.items()}}
        (folder / "storage.conf").write_text(_STORAGE.format(folder=folder))
        (folder / "containers.conf").write_text(_CONFIGURATION.format(folder=folder))

    def run(self, *arguments, timeout=_SECONDS):
        """Runs a command of podman's; returns the `CompletedProcess`."""
        return subprocess.run(
            ["podman", *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def must(self, *arguments, timeout=_SECONDS):
        """The same for a command that has to end well; returns what it printed."""
        done = self.run(*arguments, timeout=timeout)
        assert done.returncode == 0, f"podman {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def image_size(self, image):
        """In bytes, with all its layers."""
        return json.loads(self.must("image", "inspect", image))[0]["Size"]


def make_base(podman):
    """Makes what stands for debian:bookworm-slim, and tries it.

    Returns:
        Why containers cannot be started, or "".
    """
    if podman.run("image", "exists", podman.base).returncode != 0:
        reason = _import_base(podman)
        if reason:
            return reason
    podman.run("image", "prune", "--force", "--filter", "until=24h")
    done = podman.run("run", "--rm", podman.base, "true")
    if done.returncode != 0:
        return f"podman cannot start containers on this machine: {_last_line(done)}"
    podman.run("network", "rm", "--force", _NETWORK)
    podman.must("network", "create", "--subnet", f"{_SUBNET}.0/24", _NETWORK)
    return ""


def _last_line(done):
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def _import_base(podman):
    """From the mirror of this machine's own packages; returns why that failed, or ""."""
    form = "$(ORIGIN) $(REPO_URI)"
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", form, "Created-By: Packages", "Codename: bookworm"],
        capture_output=True,
        text=True,
    )
    mirrors = [line.split()[1] for line in listed.stdout.splitlines() if line[:7] == "Debian "]
    with tempfile.TemporaryDirectory() as folder:
        archive = os.path.join(folder, "base.tar")
        left_out = [f"/usr/share/{name}/*" for name in ("doc", "info", "locale", "man")]
        options = [f"--dpkgopt=path-exclude={path}" for path in left_out]
        # Not in Debian's own slim images.
        perl = 'chroot "$1" apt-get purge -y --auto-remove perl "^perl-modules-" "^libperl5"'
        options += ["--variant=apt", f"--customize-hook={perl}"]
        made = subprocess.run(
            ["mmdebstrap", *options, "bookworm", archive, *mirrors[:1]],
            capture_output=True,
            text=True,
        )
        if made.returncode != 0:
            return f"mmdebstrap made no base image: {_last_line(made)}"
        done = podman.run("import", archive, podman.base)
        return f"podman cannot store images here: {_last_line(done)}" if done.returncode else ""


class Containers:
    """Containers of one test. Use as a context manager: at its end none is left."""

    def __init__(self, podman):
        self._podman = podman
        self._folder = tempfile.TemporaryDirectory(prefix="tf_byteps_containers_")
        self._running = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._running:
            self._podman.run("rm", "--force", "--time", "0", "--ignore", process.label)
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                process.popen.wait(_SECONDS)
        self._folder.cleanup()

    def address(self, number):
        """That of the container with this number."""
        return f"{_SUBNET}.{number + 10}"

    def start(self, name, image, command, variables, options=()):
        """Starts a container; returns the `Process` that shows what it prints."""
        given = [f"--env={key}={value}" for key, value in variables.items()]
        # On a few processors threads of several TensorFlows only take turns.
        given += ["--env=OMP_NUM_THREADS=1", "--env=TF_CPP_MIN_LOG_LEVEL=2"]
        words = ["podman", "run", "--rm", "--name", name, "--hostname", name, *given, *options]
        folder = pathlib.Path(self._folder.name)
        environment = self._podman.environment
        process = Process(
            name, [*words, image, *command], environment, folder, (), f"-{len(self._running)}"
        )
        self._running.append(process)
        return process

    def start_pods(self, pods, secret, options=(), variables=()):
        """Starts pods in a network where they find each other by name; see `start_pod`."""
        return [self.start_pod(pods, pod, secret, options, variables) for pod in pods]

    def start_pod(self, pods, pod, secret, options=(), variables=()):
        """Starts one of a job's pods, with its image, command and variables.

        Args:
            pods: all of the job, whose names it can look up.
            pod: the one to start.
            secret: the job's.
            options: more of podman's.
            variables: more for the container.
        """
        number = pods.index(pod)
        hosts = [
            f"--add-host={each.name}.{each.service}:{self.address(other)}"
            for other, each in enumerate(pods)
        ]
        network = ["--network", _NETWORK, "--ip", self.address(number), *hosts]
        own = {**pod.variables(self.address(number), secret), **dict(variables)}
        container = pod.container
        return self.start(
            pod.name, container["image"], container["command"], own, [*network, *options]
        )

    def kill(self, process):
        """Ends all processes of a container at once, as the kernel does when memory is short."""
        self._podman.must("kill", "--signal", "KILL", process.label)

    def stop(self, process, grace):
        """Ends a container as Kubernetes ends a pod: SIGTERM, and SIGKILL after `grace` seconds."""
        self._podman.must("stop", "--time", str(grace), process.label)

    def wait(self, processes, timeout=_SECONDS):
        """Waits for the ends of containers; returns their exit codes."""
        for process in processes:
            try:
                process.popen.wait(timeout)
            except subprocess.TimeoutExpired:
                shown = "\n".join(f"---- {each.label}\n{each.output()}" for each in processes)
                raise AssertionError(f"{process.label} did not end:\n{shown}") from None
        return [process.popen.returncode for process in processes]
