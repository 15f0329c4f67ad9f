#!/usr/bin/env bash
# Builds a wheel for each of some versions of Python into dist/, and checks it: auditwheel says that
# it loads where TensorFlow's own wheel does, and the program of README.md runs in a new environment
# that has nothing but the wheel. A wheel needs no compiler where it is installed.
#
# usage: tools/build_wheels.sh 3.11 3.12 3.13
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/pythons.sh

platform=manylinux_2_27_x86_64
work=$PWD/build/wheels
largest=5000000  # bytes; servers need no TensorFlow, only this

export TF_BYTEPS_TOOLCHAIN=$PWD/build/toolchain
tools/fetch_toolchain.sh "$TF_BYTEPS_TOOLCHAIN"
# One copy for all versions: Bazel compiles for each only what depends on Python.
rm -rf "$work/source"/{cc,tf_byteps,tools,third_party}
copy_sources "$work/source"
mkdir -p dist

for version in "$@"; do
  python=$(find_python "$version")
  folder=$work/$version
  echo "== Python $version: $python"
  rm -rf "$folder"
  mkdir -p "$folder/built" "$folder/repaired"
  begin=$SECONDS
  "$python" -m venv "$folder/build-venv"
  "$folder/build-venv/bin/python" -m pip -q --disable-pip-version-check \
    wheel --no-deps -w "$folder/built" "$work/source"
  auditwheel repair --plat "$platform" --exclude 'libtensorflow_*.so.*' \
    -w "$folder/repaired" "$folder"/built/*.whl
  wheel=$(echo "$folder"/repaired/*.whl)
  echo "== Python $version: built in $((SECONDS - begin)) s: ${wheel##*/}, $(stat -c %s "$wheel") bytes"
  if (($(stat -c %s "$wheel") > largest)); then
    echo "build_wheels: ${wheel##*/} is larger than $largest bytes" >&2
    exit 1
  fi
  "$python" -m venv "$folder/venv"
  "$folder/venv/bin/python" -m pip -q --disable-pip-version-check install "$wheel[cpu]"
  run_readme_program "$folder"
  mv "$wheel" dist/
  echo "== Python $version: good"
done
