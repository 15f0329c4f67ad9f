"""The convention of cc/: a folder is a layer, x.cc and x.h are part of it, x_test.cc is a test of its own."""

load("@rules_cc//cc:defs.bzl", "cc_library", "cc_test")

WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Werror",
]

def engine_layer(name, deps = [], copts = []):
    """A layer of the engine; new files need no change here.

    Args:
      name: of the folder.
      deps: the layers that it may include.
      copts: compiler options beside the warnings.
    """
    native.filegroup(
        name = "headers",
        srcs = native.glob(["**/*.h"], allow_empty = True),
    )
    cc_library(
        name = name,
        srcs = native.glob(["**/*.cc"], exclude = ["**/*_test.cc"], allow_empty = True),
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
    for test in native.glob(["**/*_test.cc"], allow_empty = True):
        cc_test(
            name = test[:-len(".cc")],
            size = "medium",
            srcs = [test],
            copts = WARNINGS,
            linkstatic = True,
            deps = [
                ":" + name,
                "@local_gtest//:gtest_main",
            ],
        )
