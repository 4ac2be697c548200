#!/usr/bin/env bash
# Lays ready what tunefleet needs on a machine that has PyTorch with CUDA, NumPy and pytest but no
# network: wheels for a Python (3.12) in a folder, large ones in parts of 24 MiB, and tunefleet's own
# from `make wheel`.
#
#     benchmarks/cuda_wheels.sh FOLDER [3.12]
set -euo pipefail
folder=$1 version=${2:-3.12}
python=${PYTHON:-python3}
rm -rf "$folder"
mkdir -p "$folder"
# As in pyproject.toml; xgboost-cpu is XGBoost without the 0.5 GB of NCCL.
packages=(
  apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post1 xgboost-cpu tornado cloudpickle pebble
  sqlalchemy greenlet alembic mako msgspec zstandard lightgbm
)
platforms=(manylinux_2_28_x86_64 manylinux_2_27_x86_64 manylinux_2_17_x86_64 manylinux2014_x86_64 manylinux_2_5_x86_64 manylinux1_x86_64)
"$python" -m pip download --quiet --no-deps --only-binary=:all: --implementation cp \
  --python-version "$version" "${platforms[@]/#/--platform=}" -d "$folder" "${packages[@]}"
cp "$(dirname "$0")"/../dist/tunefleet-*.whl "$folder"
cd "$folder"
sha256sum ./*.whl > SHA256SUMS
for wheel in *.whl; do
  if [ "$(stat -c %s "$wheel")" -gt $((24 << 20)) ]; then
    split --bytes=24M --numeric-suffixes=0 --suffix-length=1 "$wheel" "$wheel.part"
    rm "$wheel"
  fi
done
du -ch -- * | sort -h
