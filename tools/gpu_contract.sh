#!/bin/sh
# The contract tests of all ops on the card.
# Usage: tools/gpu_contract.sh [build] [gtest arguments]
#   build: builds build/cuda/cuda_contract_test first (needs nvcc); else it is run as it lies there.
# Prints each test with how near the kernels came to their bounds, then totals and the failures.
set -eu
cd "$(dirname "$0")/.."
program=build/cuda/cuda_contract_test
if [ "${1:-}" = build ]; then
  shift
  cmake -S . -B build/cuda -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DROOST_CUDA=ON >/dev/null
  ninja -C build/cuda cuda_contract_test
fi
log=${OUT:-build/cuda}/cuda_contract.log
status=0
"$program" --gtest_color=no "$@" >"$log" 2>&1 || status=$?
cut -c 1-400 "$log" | grep -vE '^\[ RUN|^\[---|^$' | head -n 400
echo "---- summary"
grep -E '^card:|^\[==========\].*ran|^\[  PASSED|^\[  FAILED' "$log" | sort -u
exit $status
