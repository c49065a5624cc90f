"""Three and four ranks, on any number of GPUs (runner.py): the oracle models against torch, training on text against the host,
checkpoints that another number of ranks goes on with, memory, the loss of a rank. All run side by side but what measures
memory; and gradients in parts beside NCCL's sums, on two ranks.
"""
import concurrent.futures
import json
import os
import signal
import time

from common import require, write_tokens
from runner import as_host, losses_of, memory_as_planned, oracle

WORDS = {3: "three", 4: "four"}
ROOM = ("--memory", "100GiB")  # ranks that share a GPU count each other's memory
WORKERS = 5
STEPS = 12

ORACLES = [(m, ranks, p) for ranks in WORDS for p, models in (
    ("fp32", ("llama-odd", "llama-tied-rope3", "llama-unused", "gpt2")), ("bf16", ("llama-odd", "gpt2"))) for m in models]  # fmt: skip

# Programs that train tiny-llama on text: ranks, flags. Those with 12 rows a step go on with each other's checkpoints.
TEXTS = {
    "many-2-clip": (2, ("--batch", 2, "--clip", 0.5, "--accumulate", 3)),
    "many-3-clip": (3, ("--batch", 2, "--clip", 0.5, "--accumulate", 2)),
    "many-4-clip": (4, ("--batch", 1, "--clip", 0.5, "--accumulate", 3)),
    "many-3-bf16": (3, ("--batch", 2, "--precision", "bf16", "--accumulate", 3)),
    "many-4-bf16": (4, ("--batch", 1, "--precision", "bf16", "--clip", 0.5)),
    "many-3-parts": (3, ("--batch", 2, "--reduce", "parts")),
    "many-4-rows": (4, ("--batch", 1, "--clip", 0.5, "--vocab", "sharded", "--vocab-chunk", 20)),
}
# Two ranks: an update that adds up the ranks' gradients, and NCCL doing it.
SUMS = {f"sums-{reduce}-{wire}": ("--batch", 2, "--precision", "bf16", "--reduce-dtype", wire, "--reduce", reduce)
        for wire in ("bf16", "fp32") for reduce in ("parts", "scatter")}  # fmt: skip
FIRST = "many-3-clip"  # alone, before the others: where it fails they would too, slowly
PARTS = "come in parts, which updates add up"  # the compiler's line


def oracle_name(model, ranks, precision):
    return f"{model}-{ranks}-{precision}-many"


# ---- preparing ----


def short_model(tools, name, layers, vocabulary):
    """Llama-3.2-1B of fewer layers and words."""
    with open(tools.example("llama-3.2-1b.json")) as f:
        model = json.load(f)
    model["dims"].update(layers=layers, vocab=vocabulary)
    path = tools.path(f"{name}.json")
    with open(path, "w") as f:
        json.dump(model, f)
    return path


def list_programs(tools, program):
    """`program(name, model, flags...)` for each."""
    for model, ranks, precision in ORACLES:
        program(oracle_name(model, ranks, precision), tools.data(model, "model.json"), "--ranks", ranks, "--batch", 1, "--precision", precision,
                "--decay", "all", *ROOM)  # fmt: skip
    for name, (ranks, flags) in TEXTS.items():
        program(name, tools.example("tiny-llama.json"), "--ranks", ranks, *flags, *ROOM)
    for name, flags in SUMS.items():
        program(name, tools.example("tiny-llama.json"), "--ranks", 2, *flags, *ROOM)
    program("many-3-memory", short_model(tools, "short", 4, 32000), "--machine", "4xH200", "--ranks", 3, "--batch", 1, "--seq", 512,
            "--precision", "bf16")  # fmt: skip
    program("many-4-memory", tools.example("llama-3.2-1b.json"), "--machine", "4xH200", "--batch", 1, "--seq", 512, "--precision", "bf16")


def check_programs(said):
    """What the compiler said of each: gradients come in parts where the name says so."""
    for name in (*TEXTS, *SUMS):
        require((PARTS in said[name]) == ("parts" in name), f"{name}: {said[name]}")


def host_results(tools, folder):
    for name, (ranks, flags) in TEXTS.items():
        made = tools.path(name)
        tools.call(tools.foregather, "compile", tools.example("tiny-llama.json"), "--ranks", ranks, *flags, "-o", made)
        tools.call(made, "--data", os.path.join(folder, "tiny.bin"), "--steps", STEPS, "--lr", "1e-3", "--log",
                   os.path.join(folder, f"{name}.host.jsonl"))  # fmt: skip


# ---- running ----


def text(run, name, log, *more):
    """Trains on text; what rank 0 said."""
    ranks, path = TEXTS[name][0] if name in TEXTS else 2, run.path(log)
    return run.train(ranks, run.path(name), "--data", run.path("tiny.bin"), "--lr", "1e-3", "--log", path, *more)[0]


def text_as_host(run, name):
    log = f"{name}.jsonl"
    text(run, name, log, "--steps", STEPS)
    return as_host(name, losses_of(run.path(log)), losses_of(run.path(f"{name}.host.jsonl")), STEPS)


def goes_on(run, first, others):
    """Half the steps by one number of ranks, the others by another: the host's losses of one run."""
    save, said = run.path(f"{first}-save"), []
    text(run, first, f"{first}-half.jsonl", "--steps", STEPS // 2, "--save", save)
    for other in others:
        log = f"{other}-after-{first}.jsonl"
        text(run, other, log, "--steps", STEPS, "--resume", save)
        a, b = (losses_of(run.path(x))[0] for x in (f"{first}-half.jsonl", log))
        host = losses_of(run.path(f"{first}.host.jsonl"))[0]
        worst = max(abs(x - y) / abs(y) for x, y in zip(a + b, host))
        require(len(b) == STEPS - STEPS // 2 and worst <= 1e-5, f"{other} after {first}: losses {a + b}, the host's {host}")
        said.append(f"{other} within {worst:.1e}")
    return ", ".join(said)


def same_sums(run, wire):
    """Losses and norms of gradients in parts are those of NCCL's sums, bit by bit."""
    rows = []
    for reduce in ("parts", "scatter"):
        name = f"sums-{reduce}-{wire}"
        text(run, name, f"{name}.jsonl", "--steps", STEPS, "--deterministic", "--seed", 3)
        rows.append(losses_of(run.path(f"{name}.jsonl")))
    require(len(rows[0][0]) == STEPS and rows[0] == rows[1], f"parts {rows[0]}, NCCL {rows[1]}")
    return f"{STEPS} losses and norms"


def steps_said(nodes):
    return sum(line.startswith("step ") for line in nodes.said(0).split("\n"))


def loses(run, victim):
    """Nodes that lose one: all end at once, and rank 0, or who is left, names it."""
    begin = time.monotonic()
    nodes = run.nodes(3, run.path("many-3-clip"), "--data", run.path("tiny.bin"), "--steps", 100000000)
    try:
        while steps_said(nodes) < 5:
            require(all(p.poll() is None for p in nodes.processes), f"ended before step 5:\n{nodes.tails()}")
            require(time.monotonic() - begin < 60, f"no five steps within 60 s:\n{nodes.tails()}")
            time.sleep(0.05)
        os.killpg(nodes.processes[victim].pid, signal.SIGKILL)
        begin = time.monotonic()
        codes = nodes.wait(40)
    finally:
        nodes.kill()
    took = time.monotonic() - begin
    run.note([nodes.name, f"# rank {victim} is killed"], nodes.report(codes), codes, took)
    errors = [line for rank in range(3) for line in nodes.said(rank).split("\n") if "error: " in line]
    others = [code for rank, code in enumerate(codes) if rank != victim]
    require(took <= 30 and all(code not in (0, None) for code in others), f"ended with {codes} after {took:.1f} s:\n{nodes.tails()}")
    require(any(f"rank {victim} (" in line and "is gone" in line for line in errors), f"no word of rank {victim}: {errors}\n{nodes.tails()}")
    return f"after {took:.1f} s: {' / '.join(errors)}"


def memory(run, name, ranks, steps, vocabulary):
    tokens, log = run.path(f"{name}.bin"), run.path(f"{name}.jsonl")
    write_tokens(tokens, 1 + ranks * 512, vocabulary, 2)  # one step: the same in each
    said, took = run.train(ranks, run.path(name), "--data", tokens, "--steps", steps, "--lr", "1e-4", "--log", log, limit=120)
    losses = losses_of(log)[0]
    require(len(losses) == steps and losses[-1] < losses[0], f"losses {losses}")
    print(f"  losses {losses[0]:.3f} to {losses[-1]:.3f}, {took:.1f} s in all")
    memory_as_planned(said)


def side_by_side(run):
    """(name, function, arguments) of what shares the GPUs."""
    rows = []
    for model, ranks, precision in ORACLES:
        name = oracle_name(model, ranks, precision)
        rows.append((f"ranks {WORDS[ranks]}, oracle {model} {precision}", lambda *a: oracle(*a)[1], run, name, model, ranks, precision, None))
    for name, (ranks, _) in TEXTS.items():
        if ranks in WORDS and name != FIRST:
            rows.append((f"ranks {WORDS[ranks]}, {name} as on the host", text_as_host, run, name))
    rows.append(("ranks three and four, resume what two saved", goes_on, run, "many-2-clip", ("many-3-clip", "many-4-clip")))
    rows.append(("ranks two, resume what ranks four saved", goes_on, run, "many-4-clip", ("many-2-clip",)))
    for wire in ("bf16", "fp32"):
        rows.append((f"gradients in parts, the bits of NCCL's sums, {wire} on the wire, ranks two", same_sums, run, wire))
    return rows


def all_cases(run, cases):
    begin = time.monotonic()
    name = f"ranks three, {FIRST} as on the host"
    if not cases.run(name, lambda: print(f"  {text_as_host(run, FIRST)}")) and cases.has(name):
        print("  three ranks do not run: no more of them are tried")
        return
    rows = [row for row in side_by_side(run) if cases.has(row[0])]
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        waits = [pool.submit(function, *arguments) for _, function, *arguments in rows]
        for (name, *_), wait in zip(rows, waits):
            cases.run(name, lambda wait=wait: print(f"  {wait.result()}"))
    for victim in (2, 0):
        cases.run(f"ranks three, nodes: rank {victim} dies", lambda victim=victim: print(f"  {loses(run, victim)}"))
    if run.gpus >= 2:
        cases.run("ranks three, memory as planned", memory, run, "many-3-memory", 3, 4, 32000)
    if run.gpus >= 4:
        cases.run("ranks four, memory as planned", memory, run, "many-4-memory", 4, 30, 128256)
    print(f"more ranks: {time.monotonic() - begin:.0f} s")
