"""The build backend: setuptools, plus a framework if the target environment has none."""

import build_environment
from setuptools import build_meta
from setuptools.build_meta import (  # noqa: F401  (the frontend calls them)
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)


def get_requires_for_build_wheel(config_settings=None):
    return build_meta.get_requires_for_build_wheel(config_settings) + _requirements()


def get_requires_for_build_editable(config_settings=None):
    return build_meta.get_requires_for_build_editable(config_settings) + _requirements()


def _requirements():
    try:
        # Before one is downloaded for nothing.
        build_environment.require_tools()
        return build_environment.framework_requirements()
    except build_environment.BuildError as error:
        raise SystemExit(f"error: {error}") from None
