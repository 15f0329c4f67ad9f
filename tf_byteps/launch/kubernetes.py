"""Manifests of a job for Kubernetes: `bpslaunch --dry-run kubernetes`.

Three forms of one job: Indexed Jobs, which every cluster has; a JobSet, which ends and restarts as
a whole; a TrainJob of Kubeflow Trainer with the runtime that it refers to. In all of them a pod is
a worker and pod 0 hosts the scheduler, whom the others find by its name in a headless Service.
Pods of servers are a Job of their own. Each worker reads its rank from the index of its pod
(`environments/kubernetes.py`).

In an elastic job the scheduler has a pod of its own, as no worker lives as long as the job. A
worker's pod that fails or is evicted comes again, while the others go on.
"""

import re
from typing import Any

import yaml

from tf_byteps.config import OPTIONS
from tf_byteps.environments.place import ports_in
from tf_byteps.errors import ConfigError

KINDS = ("kubernetes", "jobset", "trainjob")
ELASTIC_KINDS = ("kubernetes", "jobset")
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_SECRET_KEY = "secret"
_PORT = 8890  # the scheduler's; a pod has its ports for itself
_SERVER = ["python", "-m", "tf_byteps.server"]
_SCHEDULER = ["python", "-m", "tf_byteps.scheduler"]
_SECONDS_TO_SAVE = 60  # from SIGTERM to the end: callbacks that save on a signal need it
_RESTARTS = 3
_SECONDS_TO_START = 1800  # until tf_byteps.init: programs prepare their data first
_SECONDS_OF_SILENCE = (
    300  # of a process that hangs as a whole; of exchanges there are stall reports
)
# What the API takes for a name from which those of pods are made.
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")

Manifest = dict[str, Any]


class PodJob:
    """A job as the user asked for it, one worker in each pod.

    Args:
        name: the name of the job and of all its objects; lower-case letters, digits and "-".
        image: the container image, with tf_byteps and the program in it.
        workers: number of pods that run the command.
        servers: number of pods that run a server; 0: every worker hosts one.
        command: what a worker runs.
        secret: the job's secret.
        variables: environment variables of all pods.
        resources: quantities of each worker's pod, such as `{"cpu": "4", "nvidia.com/gpu": "1"}`.
        server_image: the image of servers and of an elastic job's scheduler. Default: the same.
        least: how many workers an elastic job needs; None: the job is not elastic.

    Raises:
        ConfigError: the name is none that Kubernetes takes.

    Example:
        >>> job = PodJob("digits", "example/train:1", 4, 2, ["python", "train.py"], secret, {}, {})
        >>> print(to_yaml(job.manifests("kubernetes")))
    """

    def __init__(
        self,
        name: str,
        image: str,
        workers: int,
        servers: int,
        command: list[str],
        secret: str,
        variables: dict[str, str],
        resources: dict[str, str],
        server_image: str | None = None,
        least: int | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"--name {name}: Kubernetes takes at most 40 lower-case letters, digits and '-', "
                "with a letter first and no '-' last"
            )
        self._name = name
        self._image = image
        self._server_image = server_image or image
        self._least = least
        self._workers = workers
        self._servers = servers
        self._command = command
        self._secret = secret
        self._variables = variables
        self._resources = resources

    def manifests(self, kind: str) -> list[Manifest]:
        """The objects to create, in this order.

        Args:
            kind: one of `KINDS`.

        Returns:
            A list of dictionaries, as the API takes them.
        """
        secret = self._object("v1", "Secret", stringData={_SECRET_KEY: self._secret})
        if kind == "kubernetes":
            return [secret, self._service(), *self._jobs()]
        if kind == "jobset":
            return [secret, self._job_set()]
        return [secret, *self._train_job()]

    def _service(self) -> Manifest:
        # Pods look each other up before they are ready.
        spec = {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"tf-byteps.job": self._name},
        }
        return self._object("v1", "Service", spec=spec)

    def _jobs(self) -> list[Manifest]:
        address = f"{self._name}-scheduler-0" if self._least else f"{self._name}-0"
        labels = {"tf-byteps.job": self._name}
        jobs = []
        for name, pods, containers in self._roles(f"{address}.{self._name}"):
            policy, limits = self._restarts(name, pods)
            pod = self._pod(containers, {"subdomain": self._name, "restartPolicy": policy})
            spec = {**_indexed(pods, {"metadata": {"labels": labels}, "spec": pod}), **limits}
            suffix = "" if name == "worker" else f"-{name}"
            jobs.append(self._object("batch/v1", "Job", suffix, spec=spec))
        return jobs

    def _job_set(self) -> Manifest:
        host = "scheduler" if self._least else "worker"
        address = f"{self._name}-{host}-0-0.{self._name}"
        jobs = []
        for name, pods, containers in self._roles(address):
            # The JobSet starts all pods again, since all workers of a job begin together.
            policy, limits = "Never", {"backoffLimit": 0}
            if self._least and name != "scheduler":  # without which the job is lost
                policy, limits = self._restarts(name, pods)
            pod = self._pod(containers, {"restartPolicy": policy})
            template = {"spec": {**_indexed(pods, {"spec": pod}), **limits}}
            jobs.append({"name": name, "replicas": 1, "template": template})
        spec = {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "successPolicy": {"operator": "All", "targetReplicatedJobs": ["worker"]},
            "failurePolicy": {"maxRestarts": _RESTARTS},
            "replicatedJobs": jobs,
        }
        return self._object("jobset.x-k8s.io/v1alpha2", "JobSet", spec=spec)

    def _restarts(self, name: str, pods: int) -> tuple[str, Manifest]:
        """The policy for containers that fail, and what a Job says of its pods."""
        if name != "worker" or not self._least:
            return "OnFailure", {"backoffLimit": _RESTARTS * pods}
        # A worker has its own count of failures, in which evictions are not. The others are the
        # job: it fails when too few are left, and is done when so many are.
        evicted = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
        return "Never", {
            "backoffLimitPerIndex": _RESTARTS,
            "maxFailedIndexes": pods - self._least,
            "podFailurePolicy": {"rules": [evicted]},
            "successPolicy": {"rules": [{"succeededCount": self._least}]},
        }

    def _train_job(self) -> list[Manifest]:
        address = f"{self._name}-node-0-0.{self._name}"
        jobs = []
        for name, pods, containers in self._roles(address):
            is_worker = name == "worker"
            if is_worker:  # the trainer of the TrainJob fills in the rest
                containers = [{**containers[0], "name": "node"}]
            template: Manifest = {"spec": _indexed(pods, {"spec": self._pod(containers, {})})}
            if is_worker:
                step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
                template = {"metadata": {"labels": step}, **template}
            jobs.append({"name": "node" if is_worker else name, "template": template})
        network = {"publishNotReadyAddresses": True}
        runtime = self._object(
            "trainer.kubeflow.org/v1alpha1",
            "TrainingRuntime",
            spec={
                "mlPolicy": {"numNodes": self._workers},
                "template": {"spec": {"network": network, "replicatedJobs": jobs}},
            },
        )
        trainer: Manifest = {"numNodes": self._workers, "command": self._command}
        trainer["image"] = self._image
        if self._resources:
            trainer["resourcesPerNode"] = _quantities(self._resources)
        reference = {"name": self._name, "kind": "TrainingRuntime"}
        spec = {"runtimeRef": reference, "trainer": trainer}
        return [runtime, self._object("trainer.kubeflow.org/v1alpha1", "TrainJob", spec=spec)]

    def _roles(self, address: str) -> list[tuple[str, int, list[Manifest]]]:
        """For each kind of pod its name, the number of pods, and their containers."""
        ports = self._variables.get(OPTIONS["ports"].variable)
        common = {
            **self._variables,
            "DMLC_PS_ROOT_URI": address,
            "DMLC_PS_ROOT_PORT": str(ports_in(ports)[0] if ports else _PORT),
            "DMLC_NUM_WORKER": str(self._workers),
            "DMLC_NUM_SERVER": str(self._servers),
            "BYTEPS_JOB_ID": self._name,
        }
        variables: list[Manifest] = [
            {"name": name, "value": value} for name, value in common.items()
        ]
        own_address = {"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        port = self._variables.get("BYTEPS_METRICS_PORT")
        probes = _probes(int(port)) if port else {}
        if port:  # the kubelet and Prometheus come from outside of the pod
            variables.append({"name": "BYTEPS_METRICS_ADDRESS", **own_address})
        variables += [
            {"name": "DMLC_NODE_HOST", **own_address},
            {
                "name": "BYTEPS_JOB_SECRET",
                "valueFrom": {"secretKeyRef": {"name": self._name, "key": _SECRET_KEY}},
            },
        ]
        worker: Manifest = {"name": "worker", "image": self._image, "command": self._command}
        worker.update(env=variables, **probes)
        if self._resources:
            worker["resources"] = _quantities(self._resources)
        roles = [("worker", self._workers, [worker])]
        if self._servers:
            index = {"valueFrom": {"fieldRef": {"fieldPath": _INDEX}}}
            own = [{"name": "BYTEPS_SERVER_ID", **index}]
            server = self._without_program("server", _SERVER, [*variables, *own])
            roles.append(("server", self._servers, [{**server, **probes}]))
        if self._least:
            scheduler = self._without_program("scheduler", _SCHEDULER, variables)
            roles.append(("scheduler", 1, [{**scheduler, **probes}]))
        return roles

    def _without_program(
        self, role: str, command: list[str], variables: list[Manifest]
    ) -> Manifest:
        """The container of a process that needs no TensorFlow."""
        env = [*variables, {"name": "DMLC_ROLE", "value": role}]
        return {"name": role, "image": self._server_image, "command": command, "env": env}

    def _pod(self, containers: list[Manifest], more: Manifest) -> Manifest:
        return {**more, "terminationGracePeriodSeconds": _SECONDS_TO_SAVE, "containers": containers}

    def _object(self, version: str, kind: str, suffix: str = "", **parts: Any) -> Manifest:
        metadata = {"name": self._name + suffix}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}


def _indexed(pods: int, template: Manifest) -> Manifest:
    return {
        "completionMode": "Indexed",
        "completions": pods,
        "parallelism": pods,
        "template": template,
    }


def _probes(port: int) -> Manifest:
    """What a container with metrics adds: the port, and how the kubelet sees that it is alive.

    Metrics are served from `tf_byteps.init` on, by a thread that also answers while XLA compiles.
    """
    get = {"httpGet": {"path": "/metrics", "port": "metrics"}, "timeoutSeconds": 10}
    return {
        "ports": [{"name": "metrics", "containerPort": port}],
        "startupProbe": {**get, "periodSeconds": 10, "failureThreshold": _SECONDS_TO_START // 10},
        "livenessProbe": {
            **get,
            "periodSeconds": 30,
            "failureThreshold": _SECONDS_OF_SILENCE // 30,
        },
    }


def _quantities(resources: dict[str, str]) -> Manifest:
    # Both alike: neither GPUs nor a training's memory can be overcommitted.
    return {"requests": dict(resources), "limits": dict(resources)}


def read_resources(text: str) -> dict[str, str]:
    """The quantities in "cpu=4,memory=8Gi,nvidia.com/gpu=1".

    Raises:
        ConfigError: a part is not NAME=QUANTITY.
    """
    resources = {}
    for part in text.split(","):
        name, _, quantity = (each.strip() for each in part.partition("="))
        if not re.fullmatch(r"[a-z0-9./-]+", name) or not re.fullmatch(
            r"[0-9.]+[A-Za-z]*", quantity
        ):
            raise ConfigError(
                f"--resources {text}: {part!r} is not NAME=QUANTITY, such as cpu=4,memory=8Gi"
            )
        resources[name] = quantity
    return resources


def to_yaml(manifests: list[Manifest]) -> str:
    """The objects as one file for `kubectl apply -f`."""
    return yaml.safe_dump_all(manifests, sort_keys=False)
