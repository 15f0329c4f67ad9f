#!/usr/bin/env bash
# Builds tf_byteps for another version of TensorFlow than the newest one, in an environment of its
# own, and runs the Python tests there. Takes as long as `make test-python`, and minutes more.
#
# usage: tools/check_tensorflow.sh 2.20 [pytest's arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/pythons.sh

version=$1
shift
folder=$PWD/build/tensorflow/$version
rm -rf "$folder"
copy_sources "$folder"
cd "$folder"
# All packages but TensorFlow's own are those that the other tests run with.
sed -i -e "s/^tensorflow_cpu==.*/tensorflow_cpu==$version.*/" -e '/^tensorboard/d' requirements-dev.txt
make build
.venv/bin/python -c 'import tensorflow; print("== TensorFlow", tensorflow.__version__)'
.venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder "$@"
echo "== TensorFlow $version: good"
