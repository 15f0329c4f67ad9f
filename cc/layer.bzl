"""The convention of cc/: a folder is a layer, x.cc and x.h are part of it, x_test.cc is a test of its own.

What several tests share is in folders called testing: the layer's library has none of it.
"""

load("@rules_cc//cc:defs.bzl", "cc_library", "cc_test")

WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Werror",
]

_TESTS = ["**/*_test.cc"]
_EQUIPMENT = ["**/testing/*.h"]
_KERNELS = ["**/*.cu"]  # for GPUs; tests run them on the CPU, too
_OF_KERNELS = ["-Wno-unknown-pragmas"]

def engine_layer(name, deps = [], copts = [], testing_deps = []):
    """A layer of the engine; new files need no change here.

    Args:
      name: of the folder.
      deps: the layers that it may include.
      copts: compiler options beside the warnings.
      testing_deps: what its tests may include of other layers' equipment, "//cc/x:testing".
    """
    native.filegroup(
        name = "headers",
        srcs = native.glob(["**/*.h"], exclude = _EQUIPMENT, allow_empty = True),
    )
    cc_library(
        name = name,
        srcs = native.glob(["**/*.cc"], exclude = _TESTS, allow_empty = True),
        hdrs = [":headers"],
        copts = WARNINGS + copts,
        linkopts = [
            "-pthread",
            "-ldl",  # is a library of its own before glibc 2.34
        ],
        deps = deps,
        # The shared library exports all of it, called from inside or not.
        alwayslink = True,
    )
    cc_library(
        name = "testing",
        testonly = True,
        hdrs = native.glob(_EQUIPMENT, allow_empty = True),
        textual_hdrs = native.glob(_KERNELS, allow_empty = True),
        deps = testing_deps + [
            ":" + name,
            "@local_gtest//:gtest_main",
        ],
    )
    layer_tests(deps = [":testing"])

def layer_tests(deps, **kwargs):
    """The tests of a folder, each a program of its own.

    Args:
      deps: what they are linked with.
      **kwargs: what else each `cc_test` is given.
    """
    for test in native.glob(_TESTS, allow_empty = True):
        cc_test(
            name = test[:-len(".cc")],
            size = "medium",
            srcs = [test],
            copts = WARNINGS + _OF_KERNELS,
            linkstatic = True,
            deps = deps,
            **kwargs
        )
