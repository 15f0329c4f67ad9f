"""The pods of a job's manifests, as tests start them: with what Kubernetes would give them."""

import dataclasses
import subprocess
import sys

from tests.cluster import ROOT, clean_environment

_SECONDS = 120
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


@dataclasses.dataclass
class Pod:
    """A pod of an Indexed Job.

    Attributes:
        name: its host name.
        service: the headless Service; others find the pod as "name.service".
        index: its number among those of its Job.
        container: its container, as the manifest has it.
    """

    name: str
    service: str
    index: int
    container: dict

    def variables(self, address, secret):
        """The variables of its container, at this address and with this secret of the job."""
        fields = {"status.podIP": address, _INDEX: str(self.index)}
        variables = {"HOSTNAME": self.name, "JOB_COMPLETION_INDEX": str(self.index)}
        for variable in self.container["env"]:
            source = variable.get("valueFrom", {})
            if "fieldRef" in source:
                value = fields[source["fieldRef"]["fieldPath"]]
            else:
                value = secret if "secretKeyRef" in source else variable["value"]
            variables[variable["name"]] = value
        return variables


def bpslaunch(*arguments):
    """Runs bpslaunch; returns the `CompletedProcess`."""
    return subprocess.run(
        [sys.executable, "-m", "tf_byteps.launch", *arguments],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )


def pods_of(objects):
    """The pods of all Jobs among these objects, in their order."""
    jobs = [each for each in objects if each["kind"] == "Job"]
    return [pod for job in jobs for pod in _pods(job)]


def secret_of(objects):
    """The job's secret."""
    return next(each for each in objects if each["kind"] == "Secret")["stringData"]["secret"]


def _pods(job):
    spec = job["spec"]
    pod = spec["template"]["spec"]
    for index in range(spec["completions"]):
        name = f"{job['metadata']['name']}-{index}"
        yield Pod(name, pod["subdomain"], index, pod["containers"][0])
