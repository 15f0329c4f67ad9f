"""Repository rules that find TensorFlow, XLA's headers, pybind11 and GoogleTest on this machine: nothing is downloaded.

The Python to ask is PYTHON_BIN_PATH, else python3 on the PATH. TF_BYTEPS_PYTHONPATH names further folders of packages,
for a build in isolation, where they are not in that Python's own environment.
"""

_PYTHON_VARIABLES = ["PYTHON_BIN_PATH", "TF_BYTEPS_PYTHONPATH", "PATH"]

def bazel4_stand_ins():
    """Local stand-ins for three repositories that Bazel 4 would download although it has all of it built in."""
    version = native.bazel_version

    # Debian's bazel-bootstrap 4.2.3 gives its version as "" or "no_version".
    if version and version[0].isdigit() and int(version.split(".")[0]) > 4:
        return
    for name in ["rules_cc", "rules_java", "remote_coverage_tools"]:
        native.local_repository(name = name, path = "third_party/bazel4/" + name)

def _ask_python(repository_ctx, module, code):
    """Runs `code`, which prints one "@key value" line per fact, and returns a dict."""
    environ = repository_ctx.os.environ
    python = environ.get("PYTHON_BIN_PATH") or repository_ctx.which("python3")
    if not python:
        fail("No Python: set PYTHON_BIN_PATH, or: apt-get install python3")
    result = repository_ctx.execute(
        [python, "-c", code],
        environment = {
            "PYTHONPATH": environ.get("TF_BYTEPS_PYTHONPATH", ""),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
    )
    if result.return_code != 0:
        fail("%s cannot import %s (set PYTHON_BIN_PATH to a Python that can):\n%s" %
             (python, module, result.stderr))
    facts = {}
    for line in result.stdout.split("\n"):
        if line.startswith("@"):
            key, _, value = line[1:].partition(" ")
            facts[key] = value
    return facts

_ASK_TENSORFLOW = """
import platform
import tensorflow as tf
flags = tf.sysconfig.get_compile_flags()
print("@include", tf.sysconfig.get_include())
print("@folder", tf.sysconfig.get_lib())
print("@defines", *[flag[2:] for flag in flags if flag.startswith("-D")])
print("@library", *[flag[3:] for flag in tf.sysconfig.get_link_flags() if flag.startswith("-l:")])
print("@compiler", "libtensorflow_cc.so." + tf.__version__.split(".")[0])
print("@version", tf.__version__)
print("@python", platform.python_version())
"""

# Only the folders that op kernels need: with all of the wheel's 9000 headers Bazel takes three times the memory.
_TENSORFLOW_BUILD = """
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

exports_files(["build_info.py", "{library}", "{compiler}"])

alias(
    name = "framework",
    actual = "{library}",
)

# With XLA.
alias(
    name = "compiler",
    actual = "{compiler}",
)

cc_library(
    name = "headers",
    hdrs = glob(
        ["include/" + folder + "/**" for folder in [
            "Eigen",
            "absl",
            "external/farmhash_archive",
            "external/highwayhash",
            "google",
            "ml_dtypes",
            "tensorflow/c",
            "tensorflow/compiler/tf2xla",
            "tensorflow/core",
            "third_party",
            "tsl",
            "unsupported",
            "xla",
        ]],
        allow_empty = True,
    ),
    defines = {defines},
    includes = [
        "include",
        "include/external/farmhash_archive/src",
        "include/external/highwayhash",
    ],
)
"""

_BUILD_INFO = '''"""What the libraries in this folder were built for. Written by the build."""

TENSORFLOW_VERSION = "{version}"
PYTHON_VERSION = "{python}"
'''

def _installed_tensorflow_impl(repository_ctx):
    facts = _ask_python(repository_ctx, "tensorflow", _ASK_TENSORFLOW)
    library = facts["library"]
    repository_ctx.symlink(facts["include"], "include")
    for shared in [library, facts["compiler"]]:
        repository_ctx.symlink(facts["folder"] + "/" + shared, shared)
    repository_ctx.file("build_info.py", _BUILD_INFO.format(**facts))
    repository_ctx.file("BUILD", _TENSORFLOW_BUILD.format(
        compiler = facts["compiler"],
        library = library,
        defines = repr(facts["defines"].split(" ")),
    ))

installed_tensorflow = repository_rule(
    implementation = _installed_tensorflow_impl,
    environ = _PYTHON_VARIABLES,
    local = True,
)

# TensorFlow's rather than those of JAX, which are newer: a handler runs in an XLA that is newer than its headers.
# Neither package is imported.
_ASK_XLA = """
import importlib.util, os
for package in ["tensorflow", "jaxlib"]:
    spec = importlib.util.find_spec(package)
    if spec and os.path.exists(os.path.join(*spec.submodule_search_locations, "include/xla/ffi/api/ffi.h")):
        print("@include", os.path.join(*spec.submodule_search_locations, "include"))
        break
else:
    raise ImportError("no headers of XLA: pip install tensorflow-cpu or jaxlib")
"""

_XLA_BUILD = """
load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "headers",
    hdrs = glob(["xla/ffi/api/*.h"]),
    includes = ["."],
    visibility = ["//visibility:public"],
)
"""

def _installed_xla_impl(repository_ctx):
    facts = _ask_python(repository_ctx, "tensorflow or jaxlib", _ASK_XLA)
    repository_ctx.symlink(facts["include"] + "/xla/ffi/api", "xla/ffi/api")
    repository_ctx.file("BUILD", _XLA_BUILD)

installed_xla = repository_rule(
    implementation = _installed_xla_impl,
    environ = _PYTHON_VARIABLES,
    local = True,
)

_ASK_PYBIND11 = """
import pybind11, sysconfig
print("@pybind11", pybind11.get_include())
print("@python", sysconfig.get_path("include"))
print("@suffix", sysconfig.get_config_var("EXT_SUFFIX"))
"""

_PYBIND11_BUILD = """
load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "pybind11",
    hdrs = glob([
        "pybind11/**/*.h",
        "python/**/*.h",
    ]),
    includes = [
        "pybind11",
        "python",
    ],
    visibility = ["//visibility:public"],
)
"""

def _installed_pybind11_impl(repository_ctx):
    facts = _ask_python(repository_ctx, "pybind11", _ASK_PYBIND11)
    repository_ctx.symlink(facts["pybind11"], "pybind11")
    repository_ctx.symlink(facts["python"], "python")
    repository_ctx.file("suffix.bzl", "EXTENSION_SUFFIX = %r\n" % facts["suffix"])
    repository_ctx.file("BUILD", _PYBIND11_BUILD)

installed_pybind11 = repository_rule(
    implementation = _installed_pybind11_impl,
    environ = _PYTHON_VARIABLES,
    local = True,
)

_GTEST_BUILD = """
load("@rules_cc//cc:defs.bzl", "cc_import", "cc_library")

cc_import(
    name = "gtest",
    static_library = "libgtest.a",
)

cc_import(
    name = "main",
    static_library = "libgtest_main.a",
)

cc_library(
    name = "gtest_main",
    hdrs = glob(["include/gtest/**"]),
    includes = ["include"],
    linkopts = ["-pthread"],
    visibility = ["//visibility:public"],
    deps = [
        ":main",
        ":gtest",
    ],
)
"""

# Fails when a test is built, not before: the libraries do not need GoogleTest.
_NO_GTEST_BUILD = """
load("@rules_cc//cc:defs.bzl", "cc_library")

genrule(
    name = "missing",
    outs = ["missing.h"],
    cmd = "echo 'The C++ tests need GoogleTest: apt-get install libgtest-dev' >&2; exit 1",
)

cc_library(
    name = "gtest_main",
    hdrs = ["missing.h"],
    visibility = ["//visibility:public"],
)
"""

def _installed_gtest_impl(repository_ctx):
    machine = repository_ctx.execute(["uname", "-m"]).stdout.strip()
    for folder in ["/usr/lib/%s-linux-gnu" % machine, "/usr/lib64", "/usr/lib", "/usr/local/lib"]:
        if repository_ctx.path(folder + "/libgtest.a").exists:
            repository_ctx.symlink(folder + "/libgtest.a", "libgtest.a")
            repository_ctx.symlink(folder + "/libgtest_main.a", "libgtest_main.a")
            prefix = "/usr/local" if folder.startswith("/usr/local") else "/usr"
            repository_ctx.symlink(prefix + "/include/gtest", "include/gtest")
            repository_ctx.file("BUILD", _GTEST_BUILD)
            return
    repository_ctx.file("BUILD", _NO_GTEST_BUILD)

installed_gtest = repository_rule(implementation = _installed_gtest_impl, local = True)
