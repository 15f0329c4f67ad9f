#!/usr/bin/env bash
# Runs clang-tidy (.clang-tidy) on the engine's sources: all of cc/ but tests, fuzzers and what needs headers of TensorFlow or XLA. That includes
# clang's check of locks, by the attributes of cc/base/mutex.h.
#
#     tools/tidy.sh PYTHON     the environment's Python, which has clang-tidy, pybind11 and its own headers
set -euo pipefail
cd "$(dirname "$0")/.."

python=$1
includes=$("$python" -m pybind11 --includes | sed 's/-I/-isystem /g')
git ls-files 'cc/*.cc' ':!cc/*_test.cc' ':!cc/fuzz' ':!cc/tf' ':!cc/xla' |
  xargs -n 4 -P "$(nproc)" sh -c '"$0" --quiet "$@" -- -std=c++17 -Wthread-safety -I. '"$includes"' 2>/dev/null' \
    "$(dirname "$python")/clang-tidy"
