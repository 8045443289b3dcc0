#!/bin/sh
# Builds the MMA laws' program for compute capability 9.0 and runs it.
# Usage: tools/gpu_laws.sh [OUT_FOLDER]
# Writes OUT_FOLDER/mma_laws.json (default: build/gpu), prints the table, and exits as the program.
# Warnings and spills are errors: a serialized product or a spilled accumulator spoils the figures.
set -eu
cd "$(dirname "$0")/.."
build=build/gpu
out=${1:-$build}
mkdir -p "$out" "$build"

flags="-gencode arch=compute_90a,code=sm_90a -std=c++20 -O2 -Isrc -Itests"
flags="$flags -Werror all-warnings -Xptxas -v,-warn-spills"
flags="$flags -Xcompiler -Wall,-Wextra,-Wshadow,-Werror"
libraries=
# The library's product is one more figure, where headers and library are installed.
if echo '#include <cublas_v2.h>
int main() { return 0; }' >"$build/has_cublas.cu" &&
  nvcc "$build/has_cublas.cu" -Xlinker --no-as-needed -lcublas -o "$build/has_cublas" 2>/dev/null &&
  "$build/has_cublas" 2>/dev/null
then
  flags="$flags -DROOST_CUBLAS"
  libraries=-lcublas
fi

nvcc $flags -c tests/laws/mma_law_test.cu -o "$build/mma_law_test.o" >"$build/laws.log" 2>&1 &
laws=$!
nvcc $flags -c tests/laws/cuda/rates.cu -o "$build/rates.o" >"$build/rates.log" 2>&1 &
rates=$!
wait $laws || { cat "$build/laws.log"; exit 3; }
wait $rates || { cat "$build/rates.log"; exit 3; }
if cat "$build/laws.log" "$build/rates.log" |
  grep -E 'C75[0-9][0-9]|warning|[1-9][0-9]* bytes (stack frame|spill)'; then
  echo "gpu_laws: the compiler serialized, spilled or warned" >&2
  exit 3
fi
nvcc "$build/mma_law_test.o" "$build/rates.o" $libraries -o "$build/mma_law_test"
exec "$build/mma_law_test" --out "$out/mma_laws.json"
