"""Builds the libraries with Bazel; pyproject.toml has everything else."""

import contextlib
import os
import shutil
import sys
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

_ROOT = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(_ROOT, "tools"))

import build_environment  # noqa: E402
import build_progress  # noqa: E402

_FILES = [
    "libtf_byteps_engine.so",
    "_engine" + sysconfig.get_config_var("EXT_SUFFIX"),
    "libtf_byteps_xla.so",
]
_FOR_TENSORFLOW = ["_ops.so", "_build_info.py"]


class BazelBuild(build_ext):
    """Puts the libraries and `_build_info.py` into the package or, in place, the sources.

    A build for JAX alone has neither `_ops.so` nor `_build_info.py`.
    """

    def run(self):
        try:
            build_environment.require_tools()
            stage = self._build()
        except build_environment.BuildError as error:
            raise SystemExit(f"error: {error}") from None
        package = os.path.join(_ROOT if self.inplace else self.build_lib, "tf_byteps")
        os.makedirs(package, exist_ok=True)
        for file in _files():
            _replace(os.path.join(stage, file), os.path.join(package, file))
        for file in set(_FOR_TENSORFLOW).difference(_files()):
            with contextlib.suppress(FileNotFoundError):  # of a build before
                os.remove(os.path.join(package, file))

    def get_source_files(self):
        # What a source distribution must contain, besides the Python package. Not in a
        # MANIFEST.in: setuptools would then follow every link under build/.
        files = ["BUILD", "WORKSPACE", ".bazelrc", ".bazelignore"]
        for top in ["cc", "third_party", "tools"]:
            for folder, _, names in os.walk(top):
                files += [os.path.join(folder, n) for n in names if not n.endswith(".pyc")]
        return files

    def get_outputs(self):
        return (
            [] if self.inplace else [os.path.join(self.build_lib, "tf_byteps", f) for f in _files()]
        )

    def _build(self):
        environment = {
            **os.environ,
            "PYTHON_BIN_PATH": sys.executable,
            "TF_BYTEPS_PYTHONPATH": os.pathsep.join(build_environment.additional_path()),
        }
        options = []
        toolchain = os.environ.get("TF_BYTEPS_TOOLCHAIN")  # for wheels: tools/build_wheels.sh
        if toolchain:
            environment["CC"] = os.path.join(toolchain, "gcc")
            options.append("--config=wheel")
        # No server stays behind after an installation; in development the next build starts
        # faster with one.
        mode = "--max_idle_secs=120" if self.inplace else "--batch"
        output = "--output_user_root=" + os.path.join(_ROOT, "build", "bazel")
        os.makedirs(os.path.join(_ROOT, "build"), exist_ok=True)
        stage = "stage" if build_environment.with_tensorflow() else "stage_for_jax"
        command = ["bazel", output, mode, "build", *options, f"//:{stage}"]
        code = build_progress.run(command, _ROOT, environment)
        if code != 0:
            raise build_environment.BuildError(
                f"bazel build //:{stage} failed with exit code {code}, see above."
            )
        return os.path.join(_ROOT, "build", "bazel-bin", stage)


def _files():
    return [*_FILES, *(_FOR_TENSORFLOW if build_environment.with_tensorflow() else [])]


def _replace(source, target):
    # A process may be running the old library: it keeps its file, the new one gets the name.
    temporary = target + ".new"
    shutil.copyfile(source, temporary)
    os.replace(temporary, target)


setup(
    # Nothing is compiled by setuptools; the extension makes it a package for this platform and
    # this Python.
    ext_modules=[Extension("tf_byteps._engine", sources=[])],
    cmdclass={"build_ext": BazelBuild},
)
