#!/usr/bin/env bash
# Compiled steps on a host with two GPUs, with the libraries of another machine (see on_host.sh):
#   compiled.sh tests        tests/gpu/test_compiled.py (about 3 minutes)
#   compiled.sh fit MODEL... Model.fit with Keras's defaults, ms a step: each model alone on a GPU,
#                            two at a time, then on both with BytePSStrategy (about a minute for
#                            each program, which XLA takes to compile)
#   compiled.sh peers MODEL...  the same with MirroredStrategy, which Keras does not compile
# Models: resnet50, gpt2, bert-large. Logs go to $OUT, if it is set.
set -uo pipefail
cd "$(dirname "$0")/../.."
if [ -e /tmp/tf/env.sh ]; then . /tmp/tf/env.sh; fi
export NCCL_NVLS_ENABLE=0 TF_CPP_MIN_LOG_LEVEL=2 PYTHONUNBUFFERED=1 TF_FORCE_GPU_ALLOW_GROWTH=true
export PYTHONPATH="$PWD:${PYTHONPATH:-}"
export XLA_FLAGS="--xla_gpu_cuda_data_dir=/usr/local/cuda ${XLA_FLAGS:-}"
out=${OUT:-build/compiled}
mkdir -p "$out"
options="--mixed --fit --warmup 6 --steps 20 --rounds 3"

train() {  # name, then a command before the program, then its arguments
  local name=$1
  shift
  timeout 170 "$@" $options >"$out/$name.log" 2>&1 || echo "$name: exit code $?"
  grep 'ms a step' "$out/$name.log" || tail -5 "$out/$name.log"
}

program=examples/keras_synthetic_benchmark.py
command=$1
shift
case $command in
  tests)
    exec timeout 290 python3 -m pytest -q -p no:cacheprovider tests/gpu/test_compiled.py "$@"
    ;;
  fit)
    number=0
    for model in "$@"; do
      CUDA_VISIBLE_DEVICES=$((number % 2)) train "alone-$model" \
        python3 $program --strategy none --model "$model" &
      number=$((number + 1))
      if [ $((number % 2)) = 0 ]; then wait; fi
    done
    wait
    for model in "$@"; do
      train "byteps-$model" python3 -m tf_byteps.launch -np 2 python3 $program --model "$model"
    done
    ;;
  peers)
    for model in "$@"; do
      train "mirrored-$model" python3 $program --strategy mirrored --model "$model"
    done
    ;;
  *)
    echo "compiled.sh: unknown command $command" >&2
    exit 2
    ;;
esac
