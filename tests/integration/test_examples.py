"""The small examples train: the loss falls, every schedule gives the same bits, frozen parameters stay as they were."""
import os

from common import Cases, checkpoint, open_tools, read_log, read_tensors, require, same_bytes

STEPS = 24
# What stays as it is in training, by example.
FROZEN = {"mixture": (), "frozen": ("embed.weight", "base.", *(f"adapted.{i}.{name}.weight" for i in (0, 1) for name in ("up", "down")))}
SCHEDULES = {"zero3": ("--schedule", "zero3"), "minimal": ("--schedule", "zero3", "--zero3", "minimal"),
             "minimum": ("--schedule", "minimum"), "compiled": (), "recomputed": ("--recompute", "full")}  # fmt: skip


def run(tools, example, name, flags, data):
    folder, log = tools.path(example, name, "run"), tools.path(example, name, "log.jsonl")
    program = tools.path(example, name, "program")
    tools.compile(tools.example(example + ".json"), "--ranks", 2, "--clip", "1.0", *flags, out=program)
    tools.call(program, "--data", data, "--steps", STEPS, "--lr", "3e-3", "--save", folder, "--save-every", STEPS // 2, "--log", log)
    if name in ("compiled", "minimum"):
        tools.call(program, "--data", data, "--steps", 2, "--checked")
    os.remove(program)
    return folder, read_log(log)


def trains(tools, example):
    data = tools.path("data.bin")
    tools.call(tools.foregather, "tokens", "--bytes", os.path.join(tools.source, "docs", "ir.md"), "-o", data)
    folders = {}
    for name, flags in SCHEDULES.items():
        folders[name], log = run(tools, example, name, flags, data)
        first, last = log[1]["loss"], log[STEPS]["loss"]
        require(last < 0.7 * first, f"{name}: the loss went from {first} to {last}")
    for name in SCHEDULES:
        same_bytes(checkpoint(folders["zero3"]), checkpoint(folders[name]), f"zero3 and {name}")
    half = read_tensors(os.path.join(folders["zero3"], f"step-{STEPS // 2:06}", "model.safetensors"))
    whole = read_tensors(os.path.join(folders["zero3"], f"step-{STEPS:06}", "model.safetensors"))
    for name in whole:
        frozen = name.startswith(FROZEN[example]) if FROZEN[example] else False
        require((half[name] == whole[name]) == frozen, f"{name} {'moved' if frozen else 'stayed as it was'}")


def main():
    tools, _ = open_tools()
    cases = Cases()
    for example in FROZEN:
        cases.run(f"{example}: trains, the same in every schedule", trains, tools, example)
    tools.close()
    cases.end()


main()
