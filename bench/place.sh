#!/usr/bin/env bash
# Seconds to place each table of a folder within the capacity that its name ends with (A.1048576.csv): bench/place.sh FOLDER [BUILD]
# The public instances: benchmarks/challenging in the repository google/minimalloc.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
if [ $# -lt 1 ]; then
    echo "usage: bench/place.sh FOLDER [BUILD]" >&2
    exit 2
fi
python3 - "${2:-$root/build}/bin/foregather" "$1" <<'PY'
import glob, os, re, subprocess, sys, time

command, folder = sys.argv[1:]
tables = sorted(glob.glob(os.path.join(folder, "*.csv")))
bad = not tables
for table in tables:
    capacity = re.search(r"\.(\d+)\.csv$", table)
    if not capacity:
        continue
    start = time.monotonic()
    run = subprocess.run([command, "place", table, "--capacity", capacity[1]], capture_output=True, text=True)
    seconds = time.monotonic() - start
    rows = [line.split(",") for line in run.stdout.split()]
    of = {name: i for i, name in enumerate(rows[0])} if rows else {}
    items = [[int(row[of[name]]) for name in ("lower", "upper", "size", "offset")] for row in rows[1:]]
    # Checked here once more, pair by pair.
    ok = run.returncode == 0 and all(0 <= o and o + z <= int(capacity[1]) for _, _, z, o in items)
    for i, (l, u, z, o) in enumerate(items):
        ok = ok and all(u <= m or v <= l or o + z <= p or p + y <= o for m, v, y, p in items[:i])
    bad |= not ok
    print(f"{os.path.basename(table):24} {len(items):4} items  {seconds:7.3f} s  {'placed' if ok else 'NOT PLACED'}  {run.stderr.strip()}")
sys.exit(bad)
PY
