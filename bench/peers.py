#!/usr/bin/env python3
"""Foregather beside PyTorch FSDP2 and DeepSpeed, in one run on one machine: same model, tokens, precision and optimizer.

    peers.py prepare DIR --cases 1b:1x512:2,1b:4x2048:2     compiles Foregather's programs into DIR (needs the command and nvcc)
    peers.py run DIR     --cases 1b:1x512:2,1b:4x2048:2     measures, prints one table, writes DIR/table.txt and DIR/table.json

A case is MODEL:BATCHxSEQ:GPUS[:RECOMPUTE], batch a GPU; RECOMPUTE (none, full, auto) goes before --recompute. `run` compiles what DIR lacks. Each system runs alone under a time limit; one that fails
or is cut off leaves a row that says so, and the others go on. docs: bench/README.md."""
import argparse
import csv
import json
import os
import queue
import random
import re
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

from spans import exposed, length

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

SHAPES = {
    "1b": dict(layers=16, hidden=2048, heads=32, kv_heads=8, head_dim=64, ffn=8192, vocab=128256, tied=True),
    "8b": dict(layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, vocab=128256, tied=False),
}
# system -> (warm-up steps, time limit in seconds)
SYSTEMS = {
    "zero3": (10, 120),
    "compiled": (10, 120),
    "tuned": (10, 120),  # compiled, with products chosen by measurement before the run
    "fsdp2": (5, 120),
    "fsdp2-compiled": (6, 180),
    "deepspeed": (5, 150),
    "deepcompile": (12, 400),
}
OURS = ("zero3", "compiled", "tuned")
PEAK_FLOPS = 989e12
FIRST_GPU = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"  # as the driver counts, or its name there
# What moves data between ranks, or to the host and back.
COMMUNICATION = ("gather", "reduce_scatter", "all_reduce", "all_to_all", "exchange", "collect", "return_rows", "stash", "fetch")
MFU = (
    "MFU = tokens/s/GPU x FLOPs a token / 989e12 (dense bf16 of an H200); FLOPs a token = 6 x parameters of matrix products "
    "(head included, lookup not) + 6 x layers x seq x heads x head dim (causal attention); recomputation does not count"
)


RECOMPUTE = ("none", "full", "auto")


class Case:
    def __init__(self, text, recompute):
        match = re.fullmatch(r"(\w+):(\d+)x(\d+):(\d+)(?::(\w+))?", text)
        if not match or match[1] not in SHAPES or (match[5] or recompute) not in RECOMPUTE:
            raise argparse.ArgumentTypeError(f"'{text}' is no MODEL:BATCHxSEQ:GPUS[:RECOMPUTE] of the models {', '.join(SHAPES)} and {', '.join(RECOMPUTE)}")
        self.model, self.batch, self.seq, self.gpus = match[1], int(match[2]), int(match[3]), int(match[4])
        self.recompute = match[5] or recompute
        self.shape = SHAPES[self.model]
        self.sizes = f"{self.model}-{self.batch}x{self.seq}-{self.gpus}"
        self.name = self.sizes + ("" if self.recompute == "none" else f"-{self.recompute}")

    def flops_per_token(self):
        s = self.shape
        q, kv = s["heads"] * s["head_dim"], s["kv_heads"] * s["head_dim"]
        layer = s["hidden"] * (2 * q + 2 * kv + 3 * s["ffn"])
        matrices = s["layers"] * layer + s["hidden"] * s["vocab"]
        return 6 * matrices + 6 * s["layers"] * self.seq * q

    def figures(self, ms):
        rate = self.batch * self.seq / ms * 1e3
        return {"tokens_per_second_per_gpu": rate, "mfu": rate * self.flops_per_token() / PEAK_FLOPS}


# ---- Foregather's programs ----


def model_file(case, folder):
    """The 1B example, with the sizes of the case; an untied head where the model has one."""
    model = json.loads((ROOT / "examples" / "llama-3.2-1b.json").read_text())
    s = case.shape
    model["name"] = f"llama-{case.model}"
    model["dims"].update(
        {k: s[k] for k in ("vocab", "hidden", "heads", "kv_heads", "head_dim", "layers", "ffn")},
        batch=case.batch,
        seq=case.seq,
    )
    if not s["tied"]:
        embedding = model["params"]["model.embed_tokens.weight"]
        for name in embedding.pop("tied"):
            model["params"][name] = dict(embedding)
    path = folder / f"{case.name}.model.json"
    path.write_text(json.dumps(model, indent=1))
    return path


def prepare(args, case, system):
    """The program of a case; compiled where it is missing. Returns its path."""
    schedule = "compiled" if system == "tuned" else system
    program = args.folder / f"{case.name}-{schedule}"
    if program.exists():
        return program
    report = Path(f"{program}.report.json")
    command = [
        args.foregather, "compile", str(model_file(case, args.folder)), "--target", "cuda", "--machine", args.machine or f"{case.gpus}xH200",
        "--ranks", str(case.gpus), "--precision", "bf16", "--reduce-dtype", "bf16", "--schedule", schedule, "--recompute", case.recompute,
        "--report", str(report), "-o", str(program),
    ]  # fmt: skip
    if args.clip:
        command += ["--clip", str(args.clip)]
    if args.memory:
        command += ["--memory", args.memory]
    command += args.compile_options.split()
    begin = time.time()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"foregather compile: {done.stderr.strip()[-300:]}")
    figures = json.loads(report.read_text())
    figures["compile_wall_s"] = time.time() - begin
    report.write_text(json.dumps(figures, indent=1))
    return program


def token_file(case, folder):
    """Random tokens in the trainer's format."""
    path = folder / f"{case.model}-random.bin"
    needed = case.batch * case.seq * case.gpus * 8 + 1
    if not path.exists() or path.stat().st_size < 1024 + 4 * needed:
        source = random.Random(1)
        with open(path, "wb") as out:
            out.write(struct.pack("<256i", 20240801, 7, needed, *([0] * 253)))
            out.write(struct.pack(f"<{needed}I", *(source.randrange(case.shape["vocab"]) for _ in range(needed))))
    return path


# ---- memory as the driver reports it ----


class DriverMemory:
    """Polls the memory in use on the first GPU; `used()` is the most since `reset()`, less what was used before the system started."""

    def __init__(self):
        self.nvml = self.handle = None
        try:
            import pynvml

            pynvml.nvmlInit()
            by_index, by_name = pynvml.nvmlDeviceGetHandleByIndex, pynvml.nvmlDeviceGetHandleByUUID
            self.nvml, self.handle = pynvml, by_index(int(FIRST_GPU)) if FIRST_GPU.isdigit() else by_name(FIRST_GPU)
        except Exception:
            pass
        self.before = self.now() or 0
        self.most = self.before
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.poll, daemon=True)
        self.thread.start()

    def now(self):
        if self.nvml:
            return self.nvml.nvmlDeviceGetMemoryInfo(self.handle).used
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", FIRST_GPU]
        try:
            return int(subprocess.run(query, capture_output=True, text=True, timeout=10).stdout.split()[0]) << 20
        except Exception:
            return None

    def poll(self):
        while not self.stopped.wait(0.05 if self.nvml else 0.5):
            self.most = max(self.most, self.now() or 0)

    def reset(self):
        self.most = 0

    def used(self):
        self.stopped.set()
        self.thread.join()
        return max(self.most - self.before, 0)


# ---- running ----


def launch(commands, environments, log):
    """One process session a rank; rank 0's output goes to a queue of (time, line)."""
    lines = queue.Queue()
    processes = []
    for rank, (command, environment) in enumerate(zip(commands, environments)):
        out, errors = (subprocess.PIPE, subprocess.STDOUT) if rank == 0 else (log, log)  # progress goes to standard error
        processes.append(
            subprocess.Popen(command, stdout=out, stderr=errors, env=environment, text=True, start_new_session=True)
        )

    def read():
        for line in processes[0].stdout:
            log.write(line)
            lines.put((time.time(), line))
        lines.put((time.time(), None))

    threading.Thread(target=read, daemon=True).start()
    return processes, lines


def follow(processes, lines, limit, on_line):
    """Until rank 0's output ends; returns what went wrong, or None."""
    end = time.time() + limit
    wrong = None
    while wrong is None:
        try:
            at, line = lines.get(timeout=min(1.0, max(0.01, end - time.time())))
        except queue.Empty:
            dead = [p.returncode for p in processes if p.poll()]
            wrong = f"cut off after {limit} s" if time.time() >= end else f"a rank exited with {dead[0]}" if dead else None
            continue
        if line is None:
            break
        on_line(at, line)
    for process in processes:
        try:
            code = process.wait(timeout=10) if wrong is None else process.poll()
            if code and wrong is None:
                wrong = f"exit status {code}"
        except subprocess.TimeoutExpired:
            pass
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return wrong


def read_profile(path):
    """Of a table of --profile: how long communication runs and nothing else, and how long nothing runs, ms a step."""
    with open(path) as table:
        rows = list(csv.DictReader(table, delimiter="\t"))
    steps = max(int(row["calls"]) for row in rows)  # what runs less often belongs to the start
    spans = [
        (row["op"] in COMMUNICATION, float(row["start_us"]), float(row["start_us"]) + float(row["us"]))
        for row in rows
        if int(row["calls"]) == steps
    ]
    begin, end = min(b for _, b, _ in spans), max(e for _, _, e in spans)
    return {"exposed_ms": exposed(spans) / 1e3, "idle_ms": (end - begin - length([(b, e) for _, b, e in spans])) / 1e3}


def profile_ours(command, path, log):
    """Ten more steps, timed node by node."""
    if subprocess.run(command + ["--steps", "10", "--profile", str(path)], stdout=log, stderr=log, timeout=100).returncode:
        raise RuntimeError("--profile failed")
    return read_profile(path)


def run_ours(args, case, system, log):
    program = prepare(args, case, system)
    figures = json.loads(Path(f"{program}.report.json").read_text())
    warmup, limit = SYSTEMS[system]
    start = time.time()
    products = []
    if system == "tuned":
        products = ["--gemm-cache", f"{program}.products"]
        tune = [str(program), "--local-ranks", str(case.gpus), "--tune", *products]
        if subprocess.run(tune, stdout=log, stderr=log, timeout=limit).returncode:
            raise RuntimeError("--tune failed")
    command = [
        str(program), "--local-ranks", str(case.gpus), "--data", str(token_file(case, args.folder)), "--lr", "1e-4", *products,
        *args.program_options.split(),
    ]  # fmt: skip
    steps, memory = [], DriverMemory()
    processes, lines = launch([command + ["--steps", str(warmup + args.steps)]], [dict(os.environ)], log)

    def on_line(at, line):
        match = re.search(r"^step (\d+)/\d+ .*? ([\d.]+) ms", line)
        if match:
            steps.append((at - start, float(match[2])))

    wrong = follow(processes, lines, args.limit or limit, on_line)
    used = memory.used()
    if wrong or len(steps) < warmup + args.steps:
        raise RuntimeError(wrong or f"only {len(steps)} steps were reported")
    ms = statistics.median(took for _, took in steps[warmup:])
    quick = [end for end, took in steps if took <= 1.1 * ms]
    # Arrival times of lines show what the loop takes, the wait for each step's loss included.
    loop_ms = 1e3 * (steps[-1][0] - steps[warmup - 1][0]) / args.steps
    reserved = figures.get("reserved_bytes", 0)
    return {
        "ms": ms,
        "loop_ms": loop_ms,
        "planned_bytes": figures["peak_bytes"] + reserved,
        "driver_bytes": used,
        "predicted_ms": figures["step_us"] / 1e3,
        "predicted_exposed_ms": figures["exposed_us"] / 1e3,
        **profile_ours(command, f"{program}.profile", log),
        "compile_s": figures.get("compile_wall_s"),
        "first_full_speed_s": quick[0] + figures.get("compile_wall_s", 0),
    }  # fmt: skip


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_torch(args, case, system, log):
    warmup, limit = SYSTEMS[system]
    command = [
        sys.executable, str(HERE / "torch_rank.py"), "--system", system, "--shape", json.dumps(case.shape), "--batch", str(case.batch),
        "--seq", str(case.seq), "--steps", str(args.steps), "--warmup", str(warmup), "--clip", str(args.clip),
        "--recompute", "none" if case.recompute == "none" else "full",
    ]  # fmt: skip
    start, port = time.time(), free_port()
    environments = [
        dict(os.environ, RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=str(case.gpus), LOCAL_WORLD_SIZE=str(case.gpus),
             MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), BENCH_START=str(start), PYTHONUNBUFFERED="1")
        for r in range(case.gpus)
    ]  # fmt: skip
    result, memory = {}, DriverMemory()
    processes, lines = launch([command] * case.gpus, environments, log)

    def on_line(at, line):
        if not line.startswith("@"):
            return
        event = json.loads(line[1:])
        if event["event"] == "training":
            memory.reset()
        elif event["event"] == "done":
            result.update(event, driver=memory.used())  # before the profiler takes memory of its own
        elif event["event"] == "profile":
            result.update(event)

    wrong = follow(processes, lines, args.limit or limit, on_line)
    if not result:
        memory.used()
        raise RuntimeError(wrong or "no result")
    return {
        "ms": result["ms"],
        "mean_ms": result["mean_ms"],
        "allocated_bytes": result["allocated"],
        "reserved_bytes": result["reserved"],
        "driver_bytes": result["driver"],
        "exposed_ms": result.get("exposed_ms"),
        "idle_ms": result.get("idle_ms"),
        "first_full_speed_s": result["first_full_speed_s"],
    }


def run_one(args, case, system):
    log_path = args.folder / f"{case.name}-{system}.log"
    row = {"case": case.name, "system": system}
    with open(log_path, "w") as log:
        try:
            row.update((run_ours if system in OURS else run_torch)(args, case, system, log))
            row.update(case.figures(row["ms"]))
        except (RuntimeError, OSError, KeyError, ValueError, subprocess.TimeoutExpired) as error:
            row["failed"] = f"{type(error).__name__}: {error}" if not isinstance(error, RuntimeError) else str(error)
    if "failed" in row:
        tail = log_path.read_text(errors="replace").strip().splitlines()[-3:]
        row["log_tail"] = tail
    return row


# ---- the table ----


def table(rows, args):
    def pair(row, scale, *keys):
        return " / ".join(f"{row[k] / scale:.1f}" if row.get(k) is not None else "-" for k in keys)

    head = ["case", "system", "step ms", "tokens/s/GPU", "MFU", "planned / driver GB", "allocated / reserved GB", "exposed / idle ms", "to full speed s"]
    lines = [head]
    for row in rows:
        name = f"foregather {row['system']}" if row["system"] in OURS else row["system"]
        if "failed" in row:
            lines.append([row["case"], name, f"failed: {row['failed'][:70]}"])
            continue
        first = row["first_full_speed_s"]
        lines.append(
            [row["case"], name, f"{row['ms']:.1f}", f"{row['tokens_per_second_per_gpu']:,.0f}", f"{100 * row['mfu']:.1f} %",
             pair(row, 1e9, "planned_bytes", "driver_bytes"), pair(row, 1e9, "allocated_bytes", "reserved_bytes"),
             pair(row, 1, "exposed_ms", "idle_ms"), f"{first:.1f}" if first else "-"]
        )  # fmt: skip
    widths = [max(len(line[i]) for line in lines if len(line) == len(head)) for i in range(len(head))]
    text = "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in lines)
    notes = [
        f"Medians of {args.steps} steps after warm-up, one process a GPU, random tokens, bf16 compute and reduction, fp32 master, AdamW, "
        f"clipping {args.clip or 'off'}. Recomputation is the last word of a case's name: full keeps what lies between layers (the peers: activation "
        "checkpointing of each layer), auto what the memory asks for, nothing where there is none.",
        MFU,
        "planned: Foregather's peak and reserve. driver: the most on GPU 0 while training, less what was in use before. "
        "exposed: communication runs and nothing else does; idle: nothing runs; rank 0, in more steps under a profiler (Foregather's --profile, PyTorch's). "
        "to full speed: from the start of the system, compiling included, to the end of the first step within 10 % of the median.",
    ]
    return text + "\n" + "\n".join(notes) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["prepare", "run"])
    parser.add_argument("folder", type=Path, help="programs, logs and the table")
    parser.add_argument("--cases", default="1b:1x512:2,1b:4x2048:2")
    parser.add_argument("--systems", default="compiled,zero3,fsdp2-compiled,fsdp2")
    parser.add_argument("--deepspeed", action="store_true", help="adds deepspeed and deepcompile (minutes)")
    parser.add_argument("--steps", type=int, default=20, help="measured steps")
    parser.add_argument("--limit", type=int, default=0, help="seconds a system; default: its own")
    parser.add_argument("--clip", type=float, default=0.0)
    parser.add_argument("--recompute", choices=RECOMPUTE, default="none", help="of cases that do not say")
    parser.add_argument("--machine", help="of foregather compile; default: GPUSxH200")
    parser.add_argument("--memory", help="of foregather compile")
    parser.add_argument("--foregather", default=str(ROOT / "build" / "bin" / "foregather"))
    parser.add_argument("--compile-options", default="", help="more options of foregather compile; another DIR")
    parser.add_argument("--program-options", default="", help="more options for Foregather's programs")
    args = parser.parse_args()
    systems = args.systems.split(",") + (["deepspeed", "deepcompile"] if args.deepspeed else [])
    unknown = [s for s in systems if s not in SYSTEMS]
    if unknown:
        parser.error(f"unknown systems: {', '.join(unknown)}; there are {', '.join(SYSTEMS)}")
    try:
        cases = [Case(text, args.recompute) for text in args.cases.split(",")]
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    args.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    full = {case.sizes for case in cases if case.recompute == "full"}
    for case in cases:
        for system in systems:
            if system not in OURS and case.recompute == "auto" and case.sizes in full:
                continue  # peers have nothing that chooses: they checkpoint, and their row stands beside "full"
            if args.verb == "prepare":
                if system in OURS:
                    try:
                        print(f"{case.name} {system}: {prepare(args, case, system)}", flush=True)
                    except (RuntimeError, OSError) as error:
                        raise SystemExit(f"{case.name} {system}: {error}") from None
                continue
            print(f"-- {case.name} {system}", file=sys.stderr, flush=True)
            rows.append(run_one(args, case, system))
            for line in rows[-1].get("log_tail", []):
                print(f"   {line}", file=sys.stderr)
            # Written after every row: a run that is cut off leaves what it has.
            (args.folder / "table.json").write_text(json.dumps({"rows": rows, "mfu": MFU}, indent=1))
            (args.folder / "table.txt").write_text(table(rows, args))
    if args.verb == "run":
        sys.stdout.write(table(rows, args))


if __name__ == "__main__":
    main()
