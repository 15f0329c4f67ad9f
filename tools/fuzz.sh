#!/usr/bin/env bash
# Fuzzes every target of cc/fuzz for FUZZ_SECONDS (600) in all: with libFuzzer, the address and the undefined-behaviour
# sanitizer where clang++ (CLANGXX) is there, else with the driver of cc/fuzz and g++'s sanitizers. What libFuzzer has
# found so far stays in build/fuzz and is where the next run goes on.
#
#     tools/fuzz.sh BAZEL...     the command that runs Bazel
set -euo pipefail
cd "$(dirname "$0")/.."

bazel=("$@")
seconds=${FUZZ_SECONDS:-600}
clangxx=${CLANGXX:-$(command -v clang++ clang++-14 clang++-16 clang++-19 | head -1 || true)}
targets=(codec coded_rows frame control handshake local_messages service)
each=$((seconds / ${#targets[@]} + 1))
out=build/fuzz
mkdir -p "$out"

if [[ -z $clangxx ]]; then
  "${bazel[@]}" build --config=asan //cc/fuzz/...
  bin=$("${bazel[@]}" info --config=asan bazel-bin)/cc/fuzz
  echo "No clang++ here (apt-get install clang): mutating seeds with g++'s sanitizers instead of libFuzzer."
  for target in "${targets[@]}"; do
    echo "== $target, $each s"
    "$bin/${target}_fuzz" --seconds "$each" --seed "$RANDOM"
  done
  exit 0
fi

"${bazel[@]}" build //cc/fuzz/...
bin=$("${bazel[@]}" info bazel-bin)/cc/fuzz

# What the targets use, once. No instruction sets: clang knows fewer of them by name than g++.
flags=(-std=c++17 -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all -I. -pthread
  "-D__builtin_cpu_supports(name)=0")
mapfile -t sources < <(
  find cc/base cc/wire cc/van cc/sum cc/codec cc/coordinator cc/server -name '*.cc' ! -name '*_test.cc'
  echo cc/staging/local_messages.cc
)
echo "Compiling ${#sources[@]} files with $clangxx"
mkdir -p "$out/objects"
printf '%s\n' "${sources[@]}" | xargs -P "${FUZZ_JOBS:-2}" -I{} sh -c \
  'object=$1/objects/$(echo {} | tr / _).o; shift
   if [ ! "$object" -nt {} ]; then "$@" -c {} -o "$object"; fi' \
  sh "$out" "$clangxx" "${flags[@]}" -fsanitize=fuzzer-no-link
rm -f "$out/engine.a"
ar rcs "$out/engine.a" "$out"/objects/*.o

for target in "${targets[@]}"; do
  "$clangxx" "${flags[@]}" -fsanitize=fuzzer "cc/fuzz/${target}_fuzz.cc" "$out/engine.a" \
    $([[ $target == service ]] && echo -lgtest) -ldl -o "$out/${target}_fuzz"
  corpus=$out/corpus/$target
  mkdir -p "$corpus"
  "$bin/${target}_fuzz" --write-seeds "$corpus"
  echo "== $target, $each s"
  "$out/${target}_fuzz" -max_total_time="$each" -max_len=8192 -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
    -artifact_prefix="$out/$target-" "$corpus" 2>&1 | grep -vE '^#.*(NEW|REDUCE|pulse)|^INFO: seed corpus' || exit 1
done
