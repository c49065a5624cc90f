#!/usr/bin/env bash
# The side-by-side measurement, in one command on the machine with the GPUs: bench/run.sh DIR [peers.py options]
# DIR holds programs prepared elsewhere (peers.py prepare), or is empty: then they are compiled here. Wheels in DIR/wheels (DeepSpeed and
# what it needs: bench/README.md) are installed beside the system's packages first.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
if [ $# -lt 1 ]; then
    echo "usage: bench/run.sh DIR [options of bench/peers.py run]" >&2
    exit 2
fi
out=$1
shift
export PYTHONUNBUFFERED=1 NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}
if compgen -G "$out/wheels/*.whl" >/dev/null; then
    site=$(mktemp -d)
    trap 'rm -rf "$site"' EXIT
    python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$site" "$out"/wheels/*.whl
    export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}
fi
nvidia-smi --query-gpu=name,driver_version,clocks.sm,temperature.gpu --format=csv,noheader || true
python3 "$root/bench/peers.py" run "$out" "$@"
