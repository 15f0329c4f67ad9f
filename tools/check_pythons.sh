#!/usr/bin/env bash
# Installs tf_byteps as README.md says, once for each of some versions of Python, and runs the
# program of README.md there: alone, and with two workers and a server. Takes minutes for each.
#
# usage: tools/check_pythons.sh 3.12 3.13
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/pythons.sh

for version in "$@"; do
  python=$(find_python "$version")
  folder=$PWD/build/pythons/$version
  echo "== Python $version: $python"
  rm -rf "$folder"
  copy_sources "$folder/source"
  "$python" -m venv "$folder/venv"
  (cd "$folder/source" && "$folder/venv/bin/python" -m pip -q --disable-pip-version-check install '.[cpu]')
  run_readme_program "$folder"
  echo "== Python $version: good"
done
