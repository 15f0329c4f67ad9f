"""The notebooks run from their first cell to the last."""

import pathlib

import nbformat
import pytest
from nbclient import NotebookClient

_FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "notebooks"
_SLOW = ("one_global_batch.ipynb",)
_NOTEBOOKS = [
    pytest.param(path.name, marks=[pytest.mark.slow] if path.name in _SLOW else [])
    for path in sorted(_FOLDER.glob("*.ipynb"))
]

pytestmark = pytest.mark.time_limit(320)


@pytest.mark.parametrize("name", _NOTEBOOKS)
def test_notebook(name, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(_FOLDER / name, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear the outputs"
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    printed = [
        output["text"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output["output_type"] == "stream"
    ]
    assert "ended with code 0" in "".join(printed), printed
