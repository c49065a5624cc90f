"""What runs on a GPU: prepared on a machine with nvcc, run on one with GPUs and Python's standard library.

    cuda_test.py prepare --build B --source S --out BUNDLE
    cuda_test.py run --bundle BUNDLE --source S --logs DIR [--only WORD]

The bundle holds programs, their data, and what the host target makes of the same models. One line a case, `name ok` or
`name FAILED` after what was wrong; the lines are also LOGS/summary.txt, outputs of programs LOGS/programs.txt.
"""
import argparse
import concurrent.futures
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "integration"))
import many_ranks  # noqa: E402
from common import Tools, Wrong, read_log, require, write_tokens  # noqa: E402
from runner import Runner, Selected, Tee, as_host, losses_of, memory_as_planned, oracle, scale_of  # noqa: E402

MODELS = ("llama-odd", "llama-tied-rope3", "llama-unused", "gpt2")
UNITS = ("test_kernels", "test_attention")
UNIT_LIMIT = 200  # seconds


# ---- what there is ----


def oracles():
    """(name, model, ranks, precision, schedule): a small model with torch's results."""
    rows = [(m, ranks, p, "compiled") for m in MODELS for ranks in (1, 2) for p in ("fp32", "bf16")]
    rows += [("llama-odd", ranks, p, "zero3") for ranks in (1, 2) for p in ("fp32", "bf16", "fp16")]
    rows += [(m, 1, "fp16", "compiled") for m in MODELS] + [("llama-odd", 2, "fp16", "compiled")]
    return [(f"{m}-{ranks}-{p}-{s}", m, ranks, p, s) for m, ranks, p, s in rows]


TINY = {  # flags of programs that train on text; also made for the host
    "tiny-plain": ("--batch", 4),
    "tiny-clip": ("--batch", 4, "--clip", 0.5),
    "tiny-clip-accumulate": ("--batch", 2, "--clip", 0.5, "--accumulate", 3),
    "tiny-bf16-accumulate": ("--batch", 2, "--precision", "bf16", "--accumulate", 4),
    "tiny-fp16-clip": ("--batch", 4, "--precision", "fp16", "--clip", 0.5),
    "tiny-fp16-accumulate": ("--batch", 2, "--precision", "fp16", "--accumulate", 4),
}
TINY_STEPS = 12
# Fused chains, and the same model node by node: one rank.
CHAINS = {
    f"chains-{p}{'-nodes' if nodes else ''}": ("--batch", 4, "--precision", p, *(("--no-fuse",) if nodes else ()))
    for p in ("fp32", "bf16")
    for nodes in (False, True)
}
BIG = {  # Llama-3.2-1B on two ranks, batch 1 of 512, bf16
    "1b-zero3": ("--schedule", "zero3"),
    "1b-compiled": ("--schedule", "compiled"),
    "1b-report": ("--schedule", "compiled", "--recompute", "full", "--memory", "14.57GiB"),
    "1b-report-fp16": ("--schedule", "compiled", "--recompute", "full", "--memory", "14.57GiB", "--precision", "fp16"),
}


# ---- preparing ----


def compile_all(tools, folder):
    """As many side by side as there are cores: nvcc takes seconds for each."""

    def compiled(name, model, *flags):
        said = tools.call(tools.foregather, "compile", model, "--target", "cuda", *flags, "-o", os.path.join(folder, name))
        return "".join(said)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        waits = {}

        def program(name, *rest):
            waits[name] = pool.submit(compiled, name, *rest)

        list_programs(tools, program)
        many_ranks.list_programs(tools, program)
    many_ranks.check_programs({name: wait.result() for name, wait in waits.items()})


def list_programs(tools, program):
    """`program(name, model, flags...)` for each."""
    for name, model, ranks, precision, schedule in oracles():
        program(name, tools.data(model, "model.json"), "--ranks", ranks, "--batch", 2 // ranks, "--schedule", schedule,
                "--precision", precision, "--decay", "all")  # fmt: skip
    for name, flags in TINY.items():
        program(name, tools.example("tiny-llama.json"), "--ranks", 2, *flags)
    for name, flags in CHAINS.items():
        program(name, tools.example("mixture.json"), "--ranks", 1, *flags)
    program("tiny-one", tools.example("tiny-llama.json"), "--ranks", 1, "--batch", 4, "--precision", "bf16")
    program("tiny-one-f32", tools.example("tiny-llama.json"), "--ranks", 1, "--batch", 4)
    for name, flags in BIG.items():
        program(name, tools.example("llama-3.2-1b.json"), "--machine", "2xH200", "--batch", 1, "--seq", 512, "--precision", "bf16",
                *flags)  # fmt: skip


def host_results(tools, folder):
    """The same models on the host."""
    tokens = os.path.join(folder, "tiny.bin")
    for name, flags in TINY.items():
        made = tools.path(name)
        tools.call(tools.foregather, "compile", tools.example("tiny-llama.json"), "--ranks", 2, *flags, "-o", made)
        tools.call(made, "--data", tokens, "--steps", TINY_STEPS, "--lr", "1e-3", "--log", os.path.join(folder, f"{name}.host.jsonl"),
                   *scale_of(name))  # fmt: skip


def chains_on_host(tools, folder):
    for name in ("chains-fp32", "chains-bf16"):
        made = tools.path(name)
        tools.call(tools.foregather, "compile", tools.example("mixture.json"), "--ranks", 1, *CHAINS[name], "-o", made)
        tools.call(made, "--data", os.path.join(folder, "tiny.bin"), "--steps", 4, "--lr", "1e-3", "--log",
                   os.path.join(folder, f"{name}.host.jsonl"))  # fmt: skip


def prepare(args):
    tools = Tools(os.path.abspath(args.build), os.path.abspath(args.source))
    folder = tools.path("cuda-test", "x")[:-2]
    write_tokens(os.path.join(folder, "tiny.bin"), 40000, 256, 1)
    compile_all(tools, folder)
    host_results(tools, folder)
    chains_on_host(tools, folder)
    many_ranks.host_results(tools, folder)
    for name in UNITS + ("bench_kernels", "bench_attention"):
        built = os.path.join(tools.build, "tests", name)
        if os.path.exists(built):
            shutil.copy(built, folder)
    for name in os.listdir(folder):
        if os.access(os.path.join(folder, name), os.X_OK):
            subprocess.run(["strip", os.path.join(folder, name)], check=True)
    for model in MODELS:
        shutil.copytree(tools.data(model), os.path.join(folder, "data", model))
    os.makedirs(os.path.dirname(os.path.abspath(args.out)), exist_ok=True)
    # The programs hold the same library: one window over all of them stores it once.
    subprocess.run(f"tar cf - -C {os.path.dirname(folder)} cuda-test | xz -T1 --lzma2=preset=1,dict=256MiB > {args.out}",
                   shell=True, check=True)  # fmt: skip
    tools.close()
    print(f"{args.out}: {os.path.getsize(args.out) / 1e6:.1f} MB")


# ---- running ----


def all_oracles(run, cases):
    """Side by side: they are small, and what takes their time is starting."""
    rows = [(row, ()) for row in oracles() if row[2] <= run.gpus]
    rows += [(row, ("--attention", "builtin")) for row in oracles()
             if row[2] == 1 and row[3] in ("bf16", "fp16") and row[4] == "compiled"]  # fmt: skip
    results = {}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        waits = []
        for i, ((name, model, ranks, precision, _), options) in enumerate(rows):
            gpu = i % run.gpus if ranks == 1 else None
            waits.append(pool.submit(oracle, run, name, model, ranks, precision, gpu, *options))
        for ((name, *_), options), wait in zip(rows, waits):

            def case(wait=wait, name=name):
                losses, said = wait.result()
                results[name] = losses
                print(f"  {said}")

            cases.run(f"oracle {name}{' builtin attention' if options else ''}", case)

    def agree(ranks, precision):
        a, b = (results[f"llama-odd-{ranks}-{precision}-{s}"] for s in ("zero3", "compiled"))
        worst = max(abs(x - y) / abs(x) for x, y in zip(a, b))
        require(worst <= (1e-5 if precision == "fp32" else 5e-3), f"losses {a} and {b}")
        print(f"  losses within {worst:.1e}")

    for ranks in range(1, min(run.gpus, 2) + 1):
        for precision in ("fp32", "bf16", "fp16"):
            cases.run(f"zero3 and compiled agree, {ranks} ranks, {precision}", agree, ranks, precision)


def start_units(run, cases, pool):
    """They wait for the host's references most of the time: other cases run beside them."""
    names = [name for name in UNITS if cases.has(f"unit {name}") and os.path.exists(run.path(name))]
    return [(name, pool.submit(run.call, run.path(name), limit=UNIT_LIMIT, gpu=run.gpus - 1)) for name in names]


def end_units(cases, waits):
    for name, wait in waits:
        cases.run(f"unit {name}", lambda wait=wait: print("  " + wait.result()[0].strip().split("\n")[-1]))


def tiny_command(run, name, log, *more):
    return [run.path(name), "--data", run.path("tiny.bin"), "--lr", "1e-3", "--local-ranks", 2, "--log", log, *more]


def tiny_as_host(run, name, *options):
    log = run.path(name + "".join(options) + ".jsonl")
    run.call(*tiny_command(run, name, log, "--steps", TINY_STEPS, *scale_of(name), *options))
    print("  " + as_host(name, losses_of(log), losses_of(run.path(f"{name}.host.jsonl")), TINY_STEPS))


def resumes(run):
    """Six steps, a checkpoint by two processes, six more in a new run: the losses of twelve in one go."""
    whole, first, second, folder = (run.path(f"resume-{x}") for x in ("whole", "first", "second", "save"))
    name = "tiny-clip-accumulate"
    run.call(*tiny_command(run, name, whole, "--steps", 12))
    run.call(*tiny_command(run, name, first, "--steps", 6, "--save", folder))
    run.call(*tiny_command(run, name, second, "--steps", 12, "--resume", folder))
    a, b = losses_of(whole)[0], losses_of(first)[0] + losses_of(second)[0]
    worst = max(abs(x - y) / abs(x) for x, y in zip(a, b))
    require(len(b) == 12 and worst <= 1e-5, f"losses {a}, resumed {b}")
    print(f"  losses within {worst:.1e}")


def steady(run, name="tiny-plain"):
    """Two runs."""
    logs = [run.path(f"{name}-steady-{i}") for i in (1, 2)]
    for log in logs:
        run.call(*tiny_command(run, name, log, "--steps", 10, "--deterministic", *scale_of(name)))
    a, b = (losses_of(log) for log in logs)
    require(a == b, f"two runs differ: {a} and {b}")


def overflows(run, *options):
    """The same batch in every step, from a scale at which all gradients overflow: steps are skipped on both ranks until it has come
    down. From there on the run is one that began with that scale, bit by bit: skipped steps move neither weights nor AdamW's step."""
    batch = run.path("one-batch.bin")
    write_tokens(batch, 1 + 2 * 4 * 64, 256, 3)  # what one step takes
    logs = [run.path(f"overflow-{x}" + "".join(options)) for x in "ab"]
    command = lambda log, *more: [word if word != run.path("tiny.bin") else batch  # noqa: E731
                                  for word in tiny_command(run, "tiny-fp16-clip", log, "--deterministic", "--loss-scale-window", 4,
                                                           *options, *more)]  # fmt: skip
    run.call(*command(logs[0], "--steps", 40, "--loss-scale-init", 2**40))
    high = read_log(logs[0])
    first = next(s for s in sorted(high) if not high[s]["skipped"])
    require([high[s]["loss_scale"] for s in range(1, first + 1)] == [2.0 ** (41 - s) for s in range(1, first + 1)], f"{high}")
    require(len({high[s]["loss"] for s in range(1, first + 1)}) == 1, "the loss moved while steps were skipped")
    run.call(*command(logs[1], "--steps", 41 - first, "--loss-scale-init", int(high[first]["loss_scale"])))
    low = read_log(logs[1])
    for s, row in low.items():
        other = high[s + first - 1]
        for key in ("loss", "grad_norm", "loss_scale", "skipped"):
            require(row[key] == other[key], f"{key} of step {s}: {row[key]} against {other[key]}")
    scales = [high[s]["loss_scale"] for s in sorted(high)]
    require(any(b == 2 * a for a, b in zip(scales, scales[1:])), f"the scale never grows: {scales}")
    require(high[40]["loss"] < high[1]["loss"], "it does not learn")
    print(f"  first update at step {first}, {high[40]['skipped_steps']} of 40 skipped")


def fp16_resumes(run):
    """Stopped while the scale moves, with --deterministic: bit by bit the run in one go, the scale too."""
    whole, first, second, folder = (run.path(f"fp16-resume-{x}") for x in ("whole", "first", "second", "save"))
    moving = ("--loss-scale-init", 2**24, "--loss-scale-window", 3, "--deterministic")
    command = lambda log, *more: tiny_command(run, "tiny-fp16-accumulate", log, *moving, *more)  # noqa: E731
    run.call(*command(whole, "--steps", 20))
    run.call(*command(first, "--steps", 10, "--save", folder))
    run.call(*command(second, "--steps", 20, "--resume", folder))
    keys = ("loss", "grad_norm", "loss_scale", "skipped", "skipped_steps")
    a, b = read_log(whole), {**read_log(first), **read_log(second)}
    for s in range(1, 21):
        require([a[s][key] for key in keys] == [b[s][key] for key in keys], f"step {s}: {a[s]} against {b[s]}")
    require(any(a[s]["skipped"] for s in a) and not all(a[s]["skipped"] for s in a), f"skipped: {a}")


def start(run, *command):
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            cwd=run.folder, env=dict(os.environ, NCCL_NVLS_ENABLE="0"))  # fmt: skip


def wait_for_steps(process, count):
    said = []
    for line in process.stdout:
        said.append(line)
        if sum(line.startswith("step ") for line in said) >= count:
            return said
    raise Wrong(f"ended with {process.wait()} before step {count}:\n{''.join(said)[-1000:]}")


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(word) for word in f.read().split()]


def dies(run, victim):
    process = start(run, *tiny_command(run, "tiny-plain", run.path("dies.jsonl"), "--steps", 100000000))
    said = wait_for_steps(process, 20)
    os.kill(sorted(children(process.pid))[victim], signal.SIGKILL)
    begin = time.monotonic()
    try:
        rest, _ = process.communicate(timeout=40)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Wrong("the run did not end within 40 s")
    took = time.monotonic() - begin
    errors = [line for line in ("".join(said[-3:]) + rest).split("\n") if "error" in line]
    require(process.returncode != 0 and took <= 30, f"ended with {process.returncode} after {took:.1f} s")
    require(f"rank {victim}" in " ".join(errors), f"no word of rank {victim}: {errors}")
    print(f"  after {took:.1f} s: {' / '.join(errors)}")


def stops(run):
    folder = run.path("stopped")
    process = start(run, *tiny_command(run, "tiny-clip", run.path("stops.jsonl"), "--steps", 100000000, "--save", folder))
    said = wait_for_steps(process, 20)
    process.send_signal(signal.SIGTERM)
    try:
        rest, _ = process.communicate(timeout=40)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Wrong("the run did not end within 40 s")
    text = "".join(said) + rest
    require(process.returncode == 0 and "stopped" in text and "saved" in text, f"ended with {process.returncode}:\n{text[-800:]}")


def launched(run):
    """Under torchrun's environment, as torchrun would start it."""
    port = 29000 + os.getpid() % 1000
    processes = []
    for rank in range(2):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                   TORCHELASTIC_USE_AGENT_STORE="True", NCCL_NVLS_ENABLE="0")  # fmt: skip
        processes.append(subprocess.Popen([run.path("tiny-plain"), "--data", run.path("tiny.bin"), "--steps", "3"],
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env))  # fmt: skip
    said = [p.communicate(timeout=60)[0] for p in processes]
    require(all(p.returncode == 0 for p in processes), f"{[p.returncode for p in processes]}: {said}")
    require("step 3/3" in said[0] and "step" not in said[1], f"rank 1 said: {said[1]}")


def profile(run):
    run.call(*tiny_command(run, "tiny-plain", run.path("profile.jsonl"), "--steps", 5, "--profile", run.path("profile.tsv")))
    rows = open(run.path("profile.tsv")).read().strip().split("\n")
    require(len(rows) > 50, f"{len(rows)} rows")
    gathers = [row.split("\t")[:3] for row in rows if row.split("\t")[1] == "gather"]
    run.call(*tiny_command(run, "tiny-plain", run.path("profile.jsonl"), "--steps", 5, "--profile", run.path("gathers.tsv"),
                           "--profile-ops", "gather"))  # fmt: skip
    some = open(run.path("gathers.tsv")).read().strip().split("\n")[1:]
    require([row.split("\t")[:3] for row in some] == gathers, f"of gathers alone: {len(some)} rows, {len(gathers)} among all")


def big(run, name, steps=30):
    write_tokens_once(run)
    said, took = run.call(run.path(name), "--data", run.path("big.bin"), "--steps", steps, "--lr", "1e-4", "--local-ranks", 2,
                          "--log", run.path(f"{name}.jsonl"), limit=120)  # fmt: skip
    rows = read_log(run.path(f"{name}.jsonl"))
    ms = statistics.median(rows[s]["ms"] for s in rows if s > 10)
    losses = [rows[1]["loss"], rows[steps]["loss"]]
    print(f"  step {ms:.2f} ms (median), loss {losses[0]:.3f} to {losses[1]:.3f}, {took:.1f} s in all")
    require(10 < losses[0] < 13.5 and losses[1] < losses[0], f"losses {losses}")
    memory_as_planned(said)


def big_steady(run):
    """Two runs with --deterministic are alike, bit by bit, whose attention is the library's; what that costs."""
    write_tokens_once(run)
    rows = []
    for i, more in enumerate((["--deterministic"], ["--deterministic"], [])):
        log = run.path(f"1b-steady-{i}.jsonl")
        run.call(run.path("1b-compiled"), "--data", run.path("big.bin"), "--steps", 40, "--lr", "1e-4", "--local-ranks", 2,
                 "--print-every", 40, "--log", log, *more, limit=120)  # fmt: skip
        rows.append(read_log(log))
    ms = [statistics.median(r[s]["ms"] for s in r if s > 10) for r in rows]
    unlike = sum(rows[0][s]["loss"] != rows[2][s]["loss"] for s in rows[0])
    print(f"  {ms[0]:.2f} and {ms[1]:.2f} ms a step, without the option {ms[2]:.2f}; there {unlike} of 40 losses are other ones")
    for s in range(1, 41):
        a, b = ([r[s]["loss"], r[s]["grad_norm"]] for r in rows[:2])
        require(a == b, f"step {s}: {a} and {b}")


def write_tokens_once(run):
    path = run.path("big.bin")
    if not os.path.exists(path):
        write_tokens(path, 1 + 2 * 512 * 8, 128256, 2)


def big_profile(run):
    write_tokens_once(run)
    run.call(run.path("1b-compiled"), "--data", run.path("big.bin"), "--steps", 6, "--local-ranks", 2, "--profile",
             os.path.join(run.logs, "profile-1b.tsv"), limit=120)  # fmt: skip


def poisoned(run):
    """Released memory filled with NaN, by nodes of the captured step, changes no bit; --no-graph makes the same calls one by one."""
    logs = [run.path(f"poison-{x}.jsonl") for x in "abc"]
    for log, more in zip(logs, ([], ["--poison"], ["--poison", "--no-graph"])):
        run.call(run.path("tiny-one"), "--data", run.path("tiny.bin"), "--steps", 4, "--deterministic", "--log", log, *more, limit=60, gpu=0)
    a, b, c = ([(row["loss"], row["grad_norm"]) for row in read_log(log).values()] for log in logs)
    require(len(a) == 4 and a == b == c, f"{a}\n{b}\n{c}")


def chains(run, precision):
    """A chain of products and sums rounds as its nodes do: the same bits; near the host's."""
    name = f"chains-{precision}"
    logs = [run.path(f"{x}.jsonl") for x in (name, name + "-nodes")]
    for log in logs:
        run.call(run.path(os.path.basename(log)[:-6]), "--data", run.path("tiny.bin"), "--steps", 4, "--lr", "1e-3",
                 "--deterministic", "--log", log, gpu=0)  # fmt: skip
    a, b = (losses_of(log) for log in logs)
    require(len(a[0]) == 4 and a == b, f"fused {a}, node by node {b}")
    host = losses_of(run.path(f"{name}.host.jsonl"))
    worst = max(abs(x - y) / abs(y) for x, y in zip(a[0], host[0]))
    require(worst <= (1e-4 if precision == "fp32" else 1e-2), f"losses off by {worst:.2e}: {a[0]}, host {host[0]}")
    print(f"  losses within {worst:.1e} of the host's")


def sanitizer(run, name, program="tiny-one", attention="library"):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(tool):
        print("  compute-sanitizer is not here: not run")
        return
    # Races and barriers of the runtime's kernels: the libraries' own use what these two tools do not follow (asynchronous
    # barriers, matrix units that read shared memory), and they report or break it.
    others = ("cudnn", "nvjet", "cutlass", "cublas", "gemm")
    mine = [] if name == "memcheck" else [w for text in others for w in ("--kernel-name-exclude", f"kns={text}")]
    said, _ = run.call(tool, "--tool", name, *mine, "--error-exitcode", "9", run.path(program), "--data", run.path("tiny.bin"), "--steps", 2,
                       "--no-graph", "--attention", attention, limit=120, gpu=0)  # fmt: skip
    print("  " + said.strip().split("\n")[-1])


def two_gpus(run, cases):
    for name in TINY:
        cases.run(f"{name} as on the host, 2 GPUs", tiny_as_host, run, name)
    cases.run("tiny-clip without a graph, 2 GPUs", tiny_as_host, run, "tiny-clip", "--no-graph")
    cases.run("checkpoint and resume, 2 GPUs", resumes, run)
    cases.run("profile, 2 GPUs", profile, run)
    cases.run("torchrun's environment, 2 GPUs", launched, run)
    cases.run("SIGTERM stops and saves, 2 GPUs", stops, run)
    cases.run("rank 1 dies, 2 GPUs", dies, run, 1)
    cases.run("rank 0 dies, 2 GPUs", dies, run, 0)
    cases.run("deterministic runs are alike, 2 GPUs", steady, run)
    cases.run("deterministic runs are alike, fp16, 2 GPUs", steady, run, "tiny-fp16-accumulate")
    cases.run("fp16: overflows change the scale alone, 2 GPUs", overflows, run)
    cases.run("fp16: overflows without a graph, 2 GPUs", overflows, run, "--no-graph")
    cases.run("fp16: resume while the scale moves, 2 GPUs", fp16_resumes, run)
    for name in BIG:
        cases.run(f"{name}: trains, memory as planned, 2 GPUs", big, run, name)
    cases.run("1b-compiled: deterministic runs are alike, 2 GPUs", big_steady, run)
    cases.run("1b-compiled: profile, 2 GPUs", big_profile, run)


def execute(args):
    os.makedirs(args.logs, exist_ok=True)
    sys.stdout = Tee(sys.__stdout__, open(os.path.join(args.logs, "summary.txt"), "w"))
    begin = time.monotonic()
    folder = tempfile.mkdtemp(prefix="cuda-test-")
    with tarfile.open(args.bundle, "r:xz") as bundle:
        bundle.extractall(folder)
    run, cases = Runner(os.path.join(folder, "cuda-test"), args.logs), Selected(args.only)
    print(f"{run.gpus} GPUs; unpacked in {time.monotonic() - begin:.1f} s")
    if run.gpus == 0:
        print("there is no GPU here")
        sys.exit(1)
    pool = concurrent.futures.ThreadPoolExecutor(len(UNITS))
    waits = start_units(run, cases, pool)
    if args.only in "oracle zero3":
        all_oracles(run, cases)
    for precision in ("fp32", "bf16"):
        cases.run(f"chains as their nodes, {precision}", chains, run, precision)
    cases.run("compute-sanitizer memcheck, chains-bf16", sanitizer, run, "memcheck", "chains-bf16")
    cases.run("poisoned memory, tiny-one", poisoned, run)
    cases.run("compute-sanitizer memcheck, tiny-one", sanitizer, run, "memcheck")
    for tool in ("memcheck", "synccheck"):
        cases.run(f"compute-sanitizer {tool}, tiny-one, builtin attention", sanitizer, run, tool, "tiny-one", "builtin")
    # racecheck of CUDA 13.0 ends in an error of its own behind cuBLASLt's products of 16 bits, with and without attention in
    # the model, although their names are left out: kernels are looked at in f32.
    cases.run("compute-sanitizer racecheck, tiny-one-f32, builtin attention", sanitizer, run, "racecheck", "tiny-one-f32", "builtin")
    end_units(cases, waits)  # before what measures memory
    if run.gpus >= 2:
        two_gpus(run, cases)
    many_ranks.all_cases(run, cases)
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{cases.ran - cases.failed} passed, {cases.failed} failed, {time.monotonic() - begin:.0f} s")
    cases.end()


def main():
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    first = verbs.add_parser("prepare")
    first.add_argument("--build", required=True)
    first.add_argument("--source", required=True)
    first.add_argument("--out", required=True)
    second = verbs.add_parser("run")
    second.add_argument("--bundle", required=True)
    second.add_argument("--source")
    second.add_argument("--logs", required=True)
    second.add_argument("--only", default="")
    args = parser.parse_args()
    prepare(args) if args.verb == "prepare" else execute(args)


if __name__ == "__main__":
    main()
