#!/usr/bin/env bash
# Runs whole jobs (coordinator, servers and workers in one process) under valgrind: no invalid access, and nothing lost
# when everything has shut down, in order or after failures. Skips with the reason where there is no valgrind.
#
#     tools/valgrind.sh BAZEL...     the command that runs Bazel
set -euo pipefail
cd "$(dirname "$0")/.."

bazel=("$@")
if ! command -v valgrind >/dev/null; then
  if [[ $EUID == 0 ]] && command -v apt-get >/dev/null; then
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends valgrind || true
  fi
  if ! command -v valgrind >/dev/null; then
    echo "Skipped: valgrind is not here (apt-get install valgrind)."
    exit 0
  fi
fi
"${bazel[@]}" build //cc/engine:job_test
bin=$("${bazel[@]}" info bazel-bin)/cc/engine/job_test
# Threads are to take turns fairly, or those that wait for the socket starve the others.
valgrind --fair-sched=yes --leak-check=full --show-leak-kinds=definite,indirect,possible \
  --errors-for-leak-kinds=definite,indirect,possible --error-exitcode=1 --num-callers=25 \
  "$bin"
