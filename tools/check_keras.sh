#!/usr/bin/env bash
# Runs the Python tests that use Keras with other versions of it, each in an environment of its own:
# all other packages, and the libraries, are those of .venv.
#
# usage: tools/check_keras.sh "3.12.0 3.15.1" [pytest's arguments]
set -euo pipefail
cd "$(dirname "$0")/.."

versions=$1
shift
(($#)) || set -- tests/strategy tests/api tests/conformance tests/elastic
site='import sysconfig; print(sysconfig.get_path("purelib"))'
shared=$(.venv/bin/python -c "$site")
for version in $versions; do
  folder=$PWD/build/keras/$version
  rm -rf "$folder"
  .venv/bin/python -m venv --without-pip "$folder"
  own=$("$folder/bin/python" -c "$site")
  echo "import site; site.addsitedir('$shared')" > "$own/shared.pth"  # comes after its own packages
  .venv/bin/python -m pip -q --disable-pip-version-check install --no-deps --target "$own" "keras==$version"
  "$folder/bin/python" -c 'import keras; print("== Keras", keras.__version__)'
  "$folder/bin/python" -m pytest -n 2 --dist loadfile --no-loadscope-reorder "$@"
  echo "== Keras $version: good"
done
