# Functions of tools/check_pythons.sh and tools/build_wheels.sh. Source it in the repository's root.

# The interpreter of a version: on the path, or one of pyenv's.
find_python() {
  local found
  for found in "$(command -v "python$1" || true)" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
    if [[ -x $found ]] && "$found" -c 'import venv, ensurepip' 2>/dev/null; then
      echo "$found"
      return
    fi
  done
  echo "${0##*/}: there is no Python $1 here that can make environments" >&2
  return 1
}

# Copies the sources to a folder: this folder's own build is for its own Python.
copy_sources() {
  mkdir -p "$1"
  git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -pt "$1" 2>/dev/null || true
}

fail() {
  /bin/cat "$1" >&2
  return 1
}

# Runs README's program with the installation in FOLDER/venv: alone, and with two workers and a server.
run_readme_program() {
  local folder=$1 log
  "$folder/venv/bin/python" -m pip --disable-pip-version-check check
  sed -n '/^```python$/,/^```$/p' README.md | sed '/^```/d' > "$folder/train.py"
  (
    cd "$folder"
    # Nothing but what was installed: no compiler, no Bazel.
    export PATH=$folder/venv/bin CUDA_VISIBLE_DEVICES= TF_CPP_MIN_LOG_LEVEL=3
    unset PYTHONPATH
    python train.py &> alone.log || fail alone.log
    bpslaunch -np 2 --servers 1 python train.py &> two.log || fail two.log
  )
  for log in alone.log two.log; do
    echo "$log: $(grep accuracy "$folder/$log" | tail -1)"
  done
}
