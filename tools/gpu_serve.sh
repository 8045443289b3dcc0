#!/bin/sh
# The end-to-end tests of the server with the model on the card: the tests are those of the CPU, the
# program under test gets --device cuda.
# Usage: tools/gpu_serve.sh [build] [pytest arguments]
#   build: builds build/cuda/roost first (needs nvcc); else it is run as it lies there.
# The page's test drives a browser and has nothing to do with the device: it is left out.
set -eu
cd "$(dirname "$0")/.."
if [ "${1:-}" = build ]; then
  shift
  cmake -S . -B build/cuda -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DROOST_CUDA=ON >/dev/null
  ninja -C build/cuda roost
fi
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cat >"$folder/roost" <<END
#!/bin/sh
command=\$1
shift
case \$command in
  serve | run) exec "$PWD/build/cuda/roost" "\$command" "\$@" --device cuda ;;
esac
exec "$PWD/build/cuda/roost" "\$command" "\$@"
END
chmod +x "$folder/roost"
python=.venv/bin/python
[ -x "$python" ] || python=python3
"$python" -m pytest -q tests/e2e --ignore tests/e2e/test_page.py --roost "$folder/roost" "$@"
