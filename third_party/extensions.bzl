"""The repositories of WORKSPACE for MODULE.bazel. Bazel 4 has no module_extension and never loads this file."""

load("//third_party:installed.bzl", "installed_gtest", "installed_pybind11", "installed_tensorflow", "installed_xla")

def _installed_impl(_module_ctx):
    installed_tensorflow(name = "local_tensorflow")
    installed_xla(name = "local_xla")
    installed_pybind11(name = "local_pybind11")
    installed_gtest(name = "local_gtest")

installed = module_extension(implementation = _installed_impl)
