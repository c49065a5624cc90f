#!/usr/bin/env bash
# The report that this project starts from, swept: Llama-3.2-1B on two ranks, batch 1 of 512 tokens, bf16, planned for the preset 2xH200 with less
# and less memory, from 16 GiB down to the least that works, beside what was measured of DeepSpeed. A table in Markdown, on standard output:
#   bench/frontier.sh [BUILD] > bench/results/frontier-1b.md
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
command=${1:-$root/build}/bin/foregather
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)

cat <<HEAD
# Llama-3.2-1B, batch 1 x 512, two ranks: memory against step time

Planned on a CPU for the preset 2xH200 (figures measured on two H200s; 1.78 GB of it reserved for context, communicators and libraries), $(date -u +%F),
commit $commit, by \`bench/frontier.sh\`. bf16 with fp32 master weights, AdamW, no clipping. Times are predictions, to compare with each other; the peak is
what the plan takes besides the reserve. A plan found for less memory stands where it is the faster one, as in \`foregather frontier\`.
HEAD
python3 - "$command" "$root/examples/llama-3.2-1b.json" "$out" <<'PY'
import json, subprocess, sys

command, model, out = sys.argv[1:]
BASE = ["--machine", "2xH200", "--batch", "1", "--seq", "512", "--precision", "bf16", "--emit", "c", "--no-verify", "-o", out + "/plan.c"]
MIB, TOP = 1 << 20, 16 << 30


def plan(memory, *flags):
    """The report, or None when the command does not take the flags."""
    done = subprocess.run([command, "compile", model, *BASE, "--memory", str(memory), "--report", out + "/plan.json", *flags],
                          capture_output=True, text=True)
    if done.returncode == 2:
        return None
    if done.returncode not in (0, 3):
        sys.exit(done.stderr)
    with open(out + "/plan.json") as f:
        return json.load(f)


def sweep(recompute):
    flags = ("--recompute", recompute)
    least = plan(2 * 1000**3, *flags)
    if least is None:
        print(f"\n`--recompute {recompute}` is not known to this version.")
        return
    low, points, best = least["smallest_budget_bytes"], 12, None
    print(f"\n## --recompute {recompute}\n")
    print(f"The least that works is {low // MIB} MiB ({low / 1e9:.2f} GB).\n")
    print("| offered MiB | peak GB | step ms | above its bound | gathers | GB gathered | ZeRO-3 (DeepSpeed's knobs) fits: step ms |")
    print("|---|---|---|---|---|---|---|")
    for i in range(points + 1):
        memory = (low + (TOP - low) * i // points) // MIB * MIB
        ours, zero3 = plan(memory, *flags), plan(memory, *flags, "--schedule", "zero3")
        best = ours = best if best and best["step_us"] <= ours["step_us"] else ours
        other = f"{zero3['step_us'] / 1e3:.2f}" if zero3 and zero3["fits"] else "does not fit"
        print(f"| {memory // MIB:,} | {ours['peak_bytes'] / 1e9:.2f} | {ours['step_us'] / 1e3:.2f} "
              f"| {100 * (ours['step_us'] / ours['bound_us'] - 1):.1f} % | {ours['gathers']} | {ours['gather_bytes'] / 1e9:.2f} | {other} |")


sweep("full")
sweep("auto")
PY
cat <<'TAIL'

## DeepSpeed, measured

The same model, precision, batch and activation checkpointing on two H200s with the allocator held to 14,500 MiB (15.20 GB), the memory of the T4s in the
report (2026-11-29 and -30):

| system | outcome |
|---|---|
| ZeRO-3, 0.19.8, fused AdamW | trains at the cap: peak 14.80 GB, reserved 15.10 GB, 491 ms a step with allocator flushes |
| ZeRO-3, 0.17.2, fused AdamW | out of memory in step 2, by fragmentation: 11.48 GiB allocated, 1.19 GiB reserved and unusable, 2.30 GiB asked for |
| ZeRO-3, both, unfused AdamW | out of memory in step 1: the update's temporary is as large as the shard |
| DeepCompile with prefetch, unfused AdamW | out of memory in step 1 |
| DeepCompile with prefetch, fused AdamW | runs five steps; its recompilation did not end in 220 s |
| DeepCompile, 0.17.2 (the report, on T4s) | out of memory in step 2 |

Its figures are what its allocator gave out, without context and communicators: compare them with *peak GB* above.
TAIL
