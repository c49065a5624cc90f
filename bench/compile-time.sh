#!/usr/bin/env bash
# How compile time grows with the model: Llama-3.1-405B's sizes with 16, 32, 64 and 126 layers, on 512 ranks, sequence 8192, bf16, full
# recomputation; then what the C compiler takes for the largest file. Prints a table, draws docs/compile-time.svg.
#   bench/compile-time.sh [BUILD] [SVG]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
svg=${2:-$root/docs/compile-time.svg}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

python3 - "$build" "$root" "$out" "$svg" <<'PY'
import json, os, resource, subprocess, sys, time

build, root, out, svg = sys.argv[1:]
LAYERS = (16, 32, 64, 126)
FLAGS = ["--machine", root + "/examples/machines/512xH100.json", "--seq", "8192", "--batch", "1", "--precision", "bf16", "--recompute", "full"]


def measured(argv):
    """Seconds by the clock and of the processor, and peak KiB, of a command."""
    start = time.monotonic()
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(said.decode())
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def row(layers):
    source, report = f"{out}/{layers}.c", f"{out}/{layers}.json"
    clock, cpu, kib = measured([build + "/bin/foregather", "compile", root + "/examples/llama-3.1-405b.json", *FLAGS, "--dim", f"layers={layers}",
                                "--emit", "c", "-o", source, "--no-verify", "--report", report])
    with open(report) as f:
        passes = json.load(f)["compile_ms"]
    passes.pop("search", None)
    slowest = sorted(passes.items(), key=lambda item: -item[1])[:3]
    print(f"| {layers} | {cpu:.2f} | {clock:.2f} | {kib / 1024:.0f} | {os.path.getsize(source) / 1e6:.2f} | "
          + ", ".join(f"{name} {ms / 1e3:.2f}" for name, ms in slowest) + " |", flush=True)
    return cpu


print("| layers | s of processor | s by the clock | MiB at most | MB of C | slowest passes, s |\n|---|---|---|---|---|---|")
seconds = [row(layers) for layers in LAYERS]
clock, cpu, kib = measured(["cc", "-std=c11", "-O1", "-I", build + "/lib/foregather/include", "-c", f"{out}/{LAYERS[-1]}.c", "-o", f"{out}/largest.o"])
print(f"\ncc -O1 of the {LAYERS[-1]} layers: {cpu:.1f} s of processor, {clock:.1f} by the clock, {kib / 1024:.0f} MiB at most")
per = [s / n for s, n in zip(seconds, LAYERS)]
print("milliseconds a layer: " + ", ".join(f"{1e3 * p:.1f}" for p in per))


def plot():
    """One line through measured points, from zero."""
    width, height, left, bottom, top = 560, 320, 60, 50, 20
    most = max(seconds) * 1.15
    x = lambda n: left + (width - left - 20) * n / 130
    y = lambda s: height - bottom - (height - bottom - top) * s / most
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>']
    step = next(s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if most / s <= 6)
    for i in range(int(most / step) + 1):
        parts.append(f'<line x1="{left}" x2="{width - 20}" y1="{y(i * step):.1f}" y2="{y(i * step):.1f}" stroke="#ddd"/>'
                     f'<text x="{left - 6}" y="{y(i * step) + 4:.1f}" text-anchor="end">{i * step:g} s</text>')
    for n in LAYERS:
        parts.append(f'<text x="{x(n):.1f}" y="{height - bottom + 18}" text-anchor="middle">{n}</text>')
    ends = f'x1="{x(0):.1f}" y1="{y(0):.1f}" x2="{x(LAYERS[-1]):.1f}" y2="{y(seconds[-1]):.1f}"'
    parts.append(f'<line {ends} stroke="#999" stroke-dasharray="4 4"/>')
    points = " ".join(f"{x(n):.1f},{y(s):.1f}" for n, s in zip(LAYERS, seconds))
    parts.append(f'<polyline points="{points}" fill="none" stroke="#1f6fb4" stroke-width="2"/>')
    parts += [f'<circle cx="{x(n):.1f}" cy="{y(s):.1f}" r="3.5" fill="#1f6fb4"/>' for n, s in zip(LAYERS, seconds)]
    parts.append(f'<text x="{width / 2}" y="{height - 10}" text-anchor="middle">layers of Llama-3.1-405B, planned for 512 ranks '
                 '(dashed: in proportion)</text></svg>')
    with open(svg, "w") as f:
        f.write("\n".join(parts) + "\n")


plot()
PY
