#!/bin/sh
# The laws of the model and its golden data on the card.
# Usage: tools/gpu_model.sh [build]
#   build: builds the programs in build/cuda first (needs nvcc); else they are run as they are.
set -eu
cd "$(dirname "$0")/.."
if [ "${1:-}" = build ]; then
  cmake -S . -B build/cuda -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DROOST_CUDA=ON >/dev/null
  ninja -C build/cuda cuda_laws_test cuda_golden_test
fi
status=0
for name in laws golden; do
  log=${OUT:-build/cuda}/cuda_$name.log
  "build/cuda/cuda_${name}_test" --gtest_color=no >"$log" 2>&1 || status=$?
  grep -vE '^\[ RUN|^\[---|^$' "$log" | head -n 200
done
exit $status
