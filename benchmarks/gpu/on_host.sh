#!/usr/bin/env bash
# On a GPU host without Bazel, with the libraries and C++ tests of another machine:
#   on_host.sh build             builds _engine for this Python (the other two libraries travel)
#   on_host.sh cc-tests FOLDER   runs the C++ tests in it
#   on_host.sh sanitize FOLDER   runs those that need one GPU under compute-sanitizer
#   on_host.sh py-tests [ARGS]   runs tests/gpu
#   on_host.sh bench ARGS        python -m benchmarks.gpu ARGS
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ -e /tmp/tf/env.sh ]; then . /tmp/tf/env.sh; fi
export NCCL_NVLS_ENABLE=0 TF_CPP_MIN_LOG_LEVEL=2 PYTHONUNBUFFERED=1
command=$1
shift
case $command in
  build)
    suffix=$(python3 -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
    g++ -O2 -std=c++17 -shared -fPIC -fvisibility=hidden -I. $(python3 -m pybind11 --includes) \
      cc/python/*.cc tf_byteps/libtf_byteps_engine.so -Wl,-rpath,'$ORIGIN' \
      -o "tf_byteps/_engine$suffix"
    python3 -c 'import tensorflow as tf, tf_byteps
tf_byteps.init()
print("tf_byteps runs; GPUs:", tf.config.list_physical_devices("GPU"))'
    ;;
  cc-tests)
    failed=0
    for test in "$1"/*_test; do
      chmod +x "$test"
      timeout 200 "$test" --gtest_brief=1 || { echo "FAILED: $test"; failed=1; }
    done
    exit $failed
    ;;
  sanitize)
    failed=0
    for test in device copy_engine gpu_exchanger; do
      # Some tests want errors of CUDA's, and NCCL asks for kernels that are not there.
      timeout 200 compute-sanitizer --tool memcheck --leak-check full --report-api-errors no \
        --error-exitcode 1 "$1/${test}_test" --gtest_brief=1 || { echo "FAILED: $test"; failed=1; }
    done
    exit $failed
    ;;
  py-tests) exec python3 -m pytest -q -p no:cacheprovider tests/gpu "$@" ;;
  bench) exec python3 -m benchmarks.gpu "$@" ;;
  *)
    echo "on_host.sh: unknown command $command" >&2
    exit 2
    ;;
esac
