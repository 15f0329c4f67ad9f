"""A file of tf_byteps can be read in one sitting."""

import pathlib

_ROOT = pathlib.Path(__file__).resolve().parents[2] / "tf_byteps"
_MOST_LINES = 350
#: Programs write these.
_GENERATED = {"_build_info.py", "recorded_signatures.py"}


def _long_files(folder, most):
    """Hand-written Python files below a folder that have more lines, with their numbers."""
    files = sorted([*folder.rglob("*.py"), *folder.rglob("*.pyi")])
    written = [path for path in files if str(path.relative_to(folder)) not in _GENERATED]
    assert written, f"no files in {folder}"
    lines = {str(path.relative_to(folder)): len(path.read_text().splitlines()) for path in written}
    return {name: number for name, number in lines.items() if number > most}


def test_no_file_is_longer_than_one_sitting():
    assert _long_files(_ROOT, _MOST_LINES) == {}


def test_a_long_file_is_found(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "long.py").write_text("\n" * 4)
    (tmp_path / "short.pyi").write_text("\n" * 3)
    (tmp_path / "recorded_signatures.py").write_text("\n" * 9)
    assert _long_files(tmp_path, 3) == {"folder/long.py": 4}
