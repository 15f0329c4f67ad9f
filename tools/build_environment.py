"""What a build of tf_byteps finds: tools, and the framework of the environment that it is for.

It is for TensorFlow, and for JAX besides, unless it is asked to be for JAX alone
(`TF_BYTEPS_TENSORFLOW=0`) or the environment has JAX and no TensorFlow: then nothing is compiled
against TensorFlow, which is not downloaded.

pip builds in isolation: the build's own packages lie in a temporary folder and the target
environment's are hidden, but the interpreter is the target's. Asked without the variables by which
pip hides them, it shows its packages.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig

SUPPORTED_TENSORFLOW = ("2.21", "2.20")  # the one that a build brings along comes first
TENSORFLOW_REQUIREMENT = f"tensorflow-cpu=={SUPPORTED_TENSORFLOW[0]}.*"
JAXLIB_REQUIREMENT = "jaxlib>=0.10.2,<0.11"  # for XLA's headers; newer JAX runs what they built

# Seconds on an idle machine; minutes from a cold disk beside other builds.
_MOST_IMPORT_SECONDS = 1200

_SHOW_PACKAGES = """
import importlib.util, json, sys
version = None
if importlib.util.find_spec("tensorflow"):
    import tensorflow
    version = tensorflow.__version__
jaxlib = importlib.util.find_spec("jaxlib") is not None
print("@" + json.dumps({"path": sys.path, "tensorflow": version, "jaxlib": jaxlib}))
"""


class BuildError(Exception):
    """The build cannot go on; the message says what to do."""


def require_tools():
    """Checks that Bazel, a C++ compiler and Python's headers are there.

    Raises:
        BuildError: names what is missing and the command that installs it.
    """
    python_header = os.path.join(sysconfig.get_path("include"), "Python.h")
    tools = [
        ("Bazel (bazel)", "bazel-bootstrap", shutil.which("bazel")),
        ("a C++ compiler (g++)", "g++", shutil.which("gcc") and shutil.which("g++")),
        (f"Python's headers ({python_header})", "python3-dev", os.path.exists(python_header)),
    ]
    missing = [(what, package) for what, package, found in tools if not found]
    if missing:
        raise BuildError(
            f"To build tf_byteps, {' and '.join(what for what, _ in missing)} must be installed. "
            f"On Debian 12: apt-get install {' '.join(package for _, package in missing)}"
        )


def target_packages():
    """Looks at the environment of this interpreter as it is outside of the build.

    Returns:
        A dict: "path", its list of package folders, "tensorflow", the version there or None, and
        "jaxlib", whether it is there.

    Raises:
        BuildError: TensorFlow is there and cannot be imported, or not in time.
    """
    try:
        result = subprocess.run(
            # -E: without PYTHONPATH, in which pip puts the hook that hides the environment.
            [sys.executable, "-E", "-c", _SHOW_PACKAGES],
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
            timeout=_MOST_IMPORT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise BuildError(
            f"To import the TensorFlow of {sys.prefix} takes more than {_MOST_IMPORT_SECONDS} "
            "seconds. Is the disk or the network that it lies on very slow? Try again, or build "
            "for JAX alone: TF_BYTEPS_TENSORFLOW=0"
        ) from error
    for line in result.stdout.splitlines():
        if line.startswith("@"):
            return json.loads(line[1:])
    raise BuildError(
        f"The TensorFlow of {sys.prefix} cannot be imported; repair or remove it:\n{result.stderr}"
    )


def with_tensorflow():
    """Whether the build is for TensorFlow, too.

    Raises:
        BuildError: the variable that asks for it has another value than 0 or 1.
    """
    choice = os.environ.get("TF_BYTEPS_TENSORFLOW", "")
    if choice not in ("", "0", "1"):
        raise BuildError(
            f"TF_BYTEPS_TENSORFLOW is {choice!r}: set it to 1 for a build for TensorFlow and JAX, "
            "or to 0 for one for JAX alone"
        )
    if choice:
        return choice == "1"
    target = target_packages()
    return target["tensorflow"] is not None or not target["jaxlib"]


def framework_requirements():
    """What the build must bring along.

    Returns:
        A list of requirements, empty if the target environment has a supported TensorFlow or, if
        the build is for JAX alone, jaxlib.

    Raises:
        BuildError: the target environment has another TensorFlow.
    """
    target = target_packages()
    if not with_tensorflow():
        return [] if target["jaxlib"] else [JAXLIB_REQUIREMENT]
    version = target["tensorflow"]
    if version is None:
        return [TENSORFLOW_REQUIREMENT]
    if version.rpartition(".")[0] not in SUPPORTED_TENSORFLOW:
        raise BuildError(
            f"tf_byteps needs TensorFlow {' or '.join(SUPPORTED_TENSORFLOW)}, and {sys.prefix} has "
            f"{version}. Install one it needs (pip install '{TENSORFLOW_REQUIREMENT}') or use a "
            "new virtual environment."
        )
    return []


def additional_path():
    """Folders of the build's own packages, those that the target environment does not have.

    Raises:
        BuildError: pybind11, or the framework that the build is for, is nowhere.
    """
    target = target_packages()
    folders = []
    for module in ["pybind11", "tensorflow" if with_tensorflow() else "jaxlib"]:
        if target.get(module):
            continue
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise BuildError(
                f"To build tf_byteps, {sys.executable} needs {module}: pip install {module}"
            )
        folder = os.path.dirname(os.path.dirname(spec.origin))
        if folder not in target["path"] and folder not in folders:
            folders.append(folder)
    return folders
