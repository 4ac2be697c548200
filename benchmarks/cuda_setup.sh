#!/usr/bin/env bash
# On a machine with a GPU, PyTorch and no network: installs the wheels that `make gpu-wheels` laid
# ready, into a folder of their own, and runs a command with it.
#
#     benchmarks/cuda_setup.sh WHEELS SITE python3 benchmarks/cuda_search.py ...
#
# Large wheels are in parts (NAME.whl.part0 ...), which may have come one by one; all of them must lie
# in WHEELS by now.
set -euo pipefail
wheels=$1 site=$2
shift 2
joined=$(mktemp -d)
trap 'rm -rf "$joined"' EXIT
cp "$wheels"/*.whl "$joined"/ 2>/dev/null || true
for first in "$wheels"/*.whl.part0; do
  [ -e "$first" ] || continue
  name=$(basename "${first%.part0}")
  cat "$wheels/$name".part? > "$joined/$name"
done
(cd "$joined" && sha256sum --check --quiet "$(realpath "$wheels")/SHA256SUMS")
if [ ! -d "$site" ]; then
  python3 -m pip install --quiet --no-index --no-deps --no-compile --target "$site" "$joined"/*.whl
fi
export PYTHONPATH="$(cd "$(dirname "$0")/.." && pwd)/src:$site"
exec "$@"
