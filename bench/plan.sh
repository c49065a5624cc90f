#!/usr/bin/env bash
# How long the compiler takes for Llama-3.2-1B, without and with the C compiler, and how much memory: bench/plan.sh [BUILD]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
command=${1:-$root/build}/bin/foregather
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
flags=(--machine 2xT4 --batch 1 --seq 512 --precision bf16 --recompute full)

for extra in "" "--clip 1.0" "--accumulate 4"; do
    # shellcheck disable=SC2086
    "$command" compile "$root/examples/llama-3.2-1b.json" "${flags[@]}" $extra --emit c -o "$out/plan.c" --report "$out/plan.json" >"$out/log" 2>&1
    python3 - "$out/plan.json" "$extra" <<'PY'
import json, sys
report = json.load(open(sys.argv[1]))
ms = {name: value for name, value in report["compile_ms"].items() if name != "search"}
print(f"plan {sys.argv[2] or '(plain)':16} {sum(ms.values()):8.0f} ms in passes; slowest: " +
      ", ".join(f"{n} {v:.0f}" for n, v in sorted(ms.items(), key=lambda item: -item[1])[:4]))
PY
done
"$command" compile "$root/examples/llama-3.2-1b.json" "${flags[@]}" -o "$out/program" --report "$out/full.json" >"$out/log" 2>&1
python3 -c "import json, sys; print('C compiler and linker  %.0f ms' % json.load(open(sys.argv[1]))['cc_ms'])" "$out/full.json"
if [ -x /usr/bin/time ]; then
    /usr/bin/time -f "whole compile          %e s, %M KB at most" "$command" compile "$root/examples/llama-3.2-1b.json" "${flags[@]}" --emit c -o "$out/plan.c" 2>&1 >/dev/null | tail -1
fi
