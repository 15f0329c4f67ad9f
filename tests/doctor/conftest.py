from tests.launch.conftest import launch, sshd  # noqa: F401
