#!/usr/bin/env bash
# Installs tf_byteps as README.md says, once for each of some versions of Python, and runs the
# program of README.md there: alone, and with two workers and a server. Takes minutes for each.
#
# usage: tools/check_pythons.sh 3.12 3.13
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=$root/build/pythons

# The interpreter of a version: on the path, or one of pyenv's.
find_python() {
  local found
  for found in "$(command -v "python$1" || true)" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
    if [[ -x $found ]] && "$found" -c 'import venv, ensurepip' 2>/dev/null; then
      echo "$found"
      return
    fi
  done
  echo "check_pythons: there is no Python $1 here that can make environments" >&2
  return 1
}

check() {
  local version=$1 python folder=$work/$1
  python=$(find_python "$version")
  echo "== Python $version: $python"
  rm -rf "$folder"
  mkdir -p "$folder/source"
  # A copy: this folder's own build is for its own Python.
  git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$folder/source" 2>/dev/null || true
  "$python" -m venv "$folder/venv"
  (cd "$folder/source" && "$folder/venv/bin/python" -m pip -q --disable-pip-version-check install '.[cpu]')
  cd "$folder"
  venv/bin/python -m pip --disable-pip-version-check check
  sed -n '/^```python$/,/^```$/p' "$root/README.md" | sed '/^```/d' > train.py
  export CUDA_VISIBLE_DEVICES= TF_CPP_MIN_LOG_LEVEL=3
  venv/bin/python train.py > alone.log
  venv/bin/bpslaunch -np 2 --servers 1 venv/bin/python train.py > two.log
  for log in alone.log two.log; do
    echo "$log: $(grep accuracy $log | tail -1)"
  done
  cd "$root"
  echo "== Python $version: good"
}

for version in "$@"; do
  check "$version"
done
