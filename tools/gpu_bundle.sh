#!/bin/sh
# Copies the shared libraries that the programs in build/cuda use, but for the C library's, to
# build/cuda/lib, so that they run where only a driver is installed.
# Usage: tools/gpu_bundle.sh PROGRAM…
set -eu
cd "$(dirname "$0")/../build/cuda"
mkdir -p lib
for program in "$@"; do
  ldd "$program" | awk '$2 == "=>" { print $3 }' |
    grep -vE '/(libc|libm|libdl|libpthread|librt)\.so' | while read -r library; do
      [ "$library" -ef "lib/$(basename "$library")" ] || cp -L "$library" lib/
    done
done
