import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the workers of a module save what others load."""
    return str(tmp_path_factory.mktemp("tables"))
