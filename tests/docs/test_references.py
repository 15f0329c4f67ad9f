"""What README and docs refer to exists: pages, headings, files, commands, settings, programs."""

import argparse
import pathlib
import re
import shlex
import shutil
import sys

import pytest

from tf_byteps import config
from tf_byteps.launch import arguments as launch
from tf_byteps.metrics import top

sys.path.append(str(pathlib.Path(__file__).parent))

import pages  # noqa: E402

_ROOT = pages.ROOT
# Programs of the reader's own.
_READERS = {"train.py"}
_TARGETS = set(re.findall(r"^([a-z-]+):", (_ROOT / "Makefile").read_text(), re.MULTILINE))
# Those of the configuration, and what tests and tools read.
_SETTINGS = {option.variable for option in config.OPTIONS.values()} | {
    name
    for folder, ending in (("cc", "*.cc"), ("cc", "*.h"), ("tests", "*.py"), ("tf_byteps", "*.py"))
    for path in (_ROOT / folder).rglob(ending)
    for name in re.findall(r'"(BYTEPS_[A-Z0-9_]+)"', path.read_text())
}
_FOLDERS = (
    "benchmarks",
    "cc",
    "containers",
    "docs",
    "examples",
    "tests",
    "tf_byteps",
    "third_party",
    "tools",
)


def _code(page):
    """All that stands between backquotes in a page's prose."""
    return re.findall(r"`([^`\n]+)`", pages.prose(page))


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_links_lead_somewhere(page):
    for target, anchor in pages.links(page):
        assert target.exists(), f"there is no {target}"
        assert not anchor or anchor in pages.anchors(target), f"{target} has no heading #{anchor}"


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_files_exist(page):
    pattern = re.compile(rf"(?:{'|'.join(_FOLDERS)})/[\w./-]+")
    paths = [code for code in _code(page) if pattern.fullmatch(code)]
    paths += re.findall(rf"\(((?:{'|'.join(_FOLDERS)})/[\w/]+\.\w+)\)", pages.prose(page))
    assert [path for path in paths if not (_ROOT / path).exists()] == []


def test_every_example_is_listed():
    folder = _ROOT / "examples"
    found = [path for ending in ("*.py", "*.ipynb", "*.sh") for path in folder.rglob(ending)]
    listed = _code(_ROOT / "docs" / "start.md") + ["examples/demo_training.py"]  # the demo's
    assert [pages.name(path) for path in found if pages.name(path) not in listed] == []


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_settings_exist(page):
    named = set(re.findall(r"\bBYTEPS_[A-Z0-9_]*[A-Z0-9]\b", page.read_text()))
    assert named - _SETTINGS == set()


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_blocks_say_their_language(page):
    """Else nobody looks at what is in them."""
    languages = {language for language, _ in pages.BLOCK.findall(page.read_text())}
    assert languages <= {"mermaid", "python", "shell", "text"}


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_python_programs_compile(page):
    for language, text in pages.BLOCK.findall(page.read_text()):
        if language == "python":
            compile(text, f"a program of {page.name}", "exec")


def _options_of_bpslaunch():
    actions = launch.new_parser()._actions
    return {option for action in actions for option in action.option_strings}, {
        option
        for action in actions
        if action.nargs != 0
        for option in action.option_strings
        if not isinstance(action, argparse._HelpAction)
    }


def _lines_of_shell_blocks(page):
    for language, text in pages.BLOCK.findall(page.read_text()):
        if language == "shell":
            text = re.sub(r"\\\n|(?m:(?:^|\s)#.*)", " ", text)
            yield from text.replace(";", "\n").splitlines()


def _commands(page):
    """The commands of shell blocks and of prose."""
    prose = [code for code in _code(page) if re.match(r"(make|bpslaunch|bpstop|python) \S", code)]
    return _words([*prose, *_lines_of_shell_blocks(page)])


def _words(lines):
    """Commands as lists of words, without the variables before them."""
    for line in lines:
        words = shlex.split(re.sub(r"^\w+\$ ", "", line))
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if words and words[0] != "...":
            yield words


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_commands_exist(page):
    for words in _commands(page):
        check = _CHECKS.get(pathlib.Path(words[0]).name)
        assert (check or _is_installed)(words), f"no such command: {shlex.join(words)}"


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_command_lines_of_bpslaunch_can_be_parsed(page):
    for words in _words(_lines_of_shell_blocks(page)):
        if pathlib.Path(words[0]).name == "bpslaunch":
            launch.new_parser().parse_args(words[1:])


def _is_target(words):
    return all(word in _TARGETS for word in words[1:] if "=" not in word)


def _is_bpslaunch(words):
    known, with_value = _options_of_bpslaunch()
    words = list(words[1:])
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option not in known:
            return False
        if option == "-m":
            return _is_python(["python", option, *words])
        if option in with_value and words:
            words.pop(0)
    return not words or pathlib.Path(words[0]).name not in _CHECKS or _is_python(words)


def _is_python(words):
    if words[1:2] == ["-m"]:
        path = _ROOT / words[2].replace(".", "/")
        is_ours = words[2].partition(".")[0] in ("tf_byteps", "benchmarks", "tests", "examples")
        is_module = path.with_suffix(".py").exists() or (path / "__main__.py").exists()
        return is_module or not is_ours
    return words[1] in _READERS or (_ROOT / words[1]).exists()


def _is_installed(words):
    # `make test-cc` builds the C++ tests, each from a source of its name.
    source = words[0].removeprefix("build/bazel-bin/") + ".cc"
    return shutil.which(words[0]) or (_ROOT / words[0]).exists() or (_ROOT / source).exists()


def _is_bpstop(words):
    return top._parser().parse_args(words[1:])


def _is_the_readers(words):
    """A program that this machine need not have."""
    return True


_CHECKS = {
    "make": _is_target,
    "bpslaunch": _is_bpslaunch,
    "bpstop": _is_bpstop,
    "python": _is_python,
    **dict.fromkeys(("buildah", "docker", "podman"), _is_the_readers),
}


@pytest.mark.parametrize(
    "words",
    [
        ["make", "tea"],
        ["bpslaunch", "-np", "2", "--tea", "python", "train.py"],
        ["bpslaunch", "-np", "2", "python", "tea.py"],
        ["python", "-m", "tf_byteps.tea"],
    ],
    ids=" ".join,
)
def test_a_command_that_does_not_exist_is_found(words):
    assert not _CHECKS[words[0]](words)
