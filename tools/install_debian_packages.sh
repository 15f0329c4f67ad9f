#!/usr/bin/env bash
# Installs the Debian packages that the build and the tests need and this machine lacks; says which when not root.
set -euo pipefail

python=${1:-python3}
missing=()

need() {  # need PACKAGE COMMAND...: PACKAGE is missing unless COMMAND succeeds
  local package=$1
  shift
  "$@" >/dev/null 2>&1 || missing+=("$package")
}

if command -v "$python" >/dev/null && ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "tf_byteps needs Python 3.11; $python is $("$python" -V). Run: make PYTHON=/path/to/python3.11 ..." >&2
  exit 1
fi

need bazel-bootstrap command -v bazel
need g++ command -v g++
need libgtest-dev test -e /usr/include/gtest/gtest.h
need python3 command -v "$python"
need python3-venv "$python" -c 'import ensurepip, venv'
need python3-dev "$python" -c \
  'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
# The tests start an ssh server of their own and log in to it.
need openssh-client command -v ssh
need openssh-server test -x /usr/sbin/sshd

if [[ ${#missing[@]} == 0 ]]; then
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "Missing: ${missing[*]} (names of Debian packages). Install them and run make again." >&2
  exit 1
fi
if [[ $EUID != 0 ]]; then
  echo "Missing packages. Run this, then make again:" >&2
  echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi
echo "Installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# A package that starts a service (sshd) must not start it here.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
  trap 'rm -f "$policy"' EXIT
fi
apt-get install -q -y --no-install-recommends "${missing[@]}"
