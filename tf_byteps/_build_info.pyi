"""What `setup.py` writes when it has built the libraries."""

TENSORFLOW_VERSION: str
PYTHON_VERSION: str
