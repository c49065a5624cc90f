"""fp16 with a scaled loss: follows torch's f32 run; a step that overflows on one rank is skipped by all and changes nothing
but the scale; schedules and resumed runs agree to the last bit."""
import json
import os

from common import Cases, checkpoint, near, open_tools, read_log, read_tensors, require, same_bytes

# Against torch in f32: f16 keeps 11 bits of every activation, weight and gradient. In the steps 26 and 27 the run is
# unstable and clipping acts; where the factor were wrong, nothing after them would be near.
STEPS = 32
LOSS, NORM = (5e-5, 1e-2, 1e-3), (1e-2, 1e-1, 5e-2)  # before, in and after these two steps
OPTIONS = ("--lr", "1e-3", "--weight-decay", "0.1")
SEQ = 16
HUGE = 2**40  # overflows whatever the model


class Fp16:
    def __init__(self, tools):
        self.tools = tools
        self.tokens = tools.path("tokens.bin")
        tools.call(tools.foregather, "tokens", "--bytes", os.path.join(tools.source, "docs", "ir.md"), "-o", self.tokens)

    def program(self, name, *flags, model=None):
        path = self.tools.path(name, "program")
        if not os.path.exists(path):
            if not model:
                model, flags = self.tools.example("tiny-llama.json"), (*flags, "--seq", SEQ)
            self.tools.compile(model, "--precision", "fp16", "--decay", "matrices", *flags, out=path)
        return path

    def train(self, program, run, *options, data=None):
        log, save = self.tools.path(run, "log.jsonl"), self.tools.path(run, "save")
        _, said = self.tools.call(program, "--data", data or self.tokens, *OPTIONS, "--log", log, "--save", save, *options)
        return read_log(log), save, said


def manifest(save):
    (name,) = (name for name in os.listdir(save) if name.startswith("step-"))
    with open(os.path.join(save, name, "manifest.json")) as f:
        return json.load(f)


def tensors(save):
    found = {}
    for path, data in checkpoint(save).items():
        if path.endswith(".safetensors"):
            found[os.path.basename(path)] = data
    return found


def curve(f):
    """Torch's f32 run of tests/data/curve, clipped and accumulated, on two ranks. At a scale of 65536 step 27 would overflow."""
    t = f.tools
    expected = json.load(open(t.data("curve", "expected.json")))
    program = f.program("curve", "--ranks", 2, "--batch", 4, "--accumulate", 2, "--clip", "1.0", model=t.data("curve", "model.json"))
    steps, _, _ = f.train(program, "curve-run", "--steps", STEPS, "--lr", expected["lr"], "--warmup", expected["warmup"],
                             "--weights", t.data("curve", "weights.safetensors"), "--loss-scale", 1024,
                             data=t.data("curve", "tokens.bin"))  # fmt: skip
    worst = [[0.0, 0.0] for _ in LOSS]
    for row in expected["steps_log"][:STEPS]:
        got, s = steps[row["step"]], row["step"]
        require(got["loss_scale"] == 1024 and got["skipped"] is False, f"step {s}: {got}")
        part = (s >= 26) + (s >= 28)
        errors = (near(got["loss"], row["loss"], LOSS[part], f"loss of step {s}"),
                  near(got["grad_norm"], row["grad_norm"], NORM[part], f"gradient norm of step {s}"))  # fmt: skip
        worst[part] = [max(a, b) for a, b in zip(worst[part], errors)]
    print("  errors of loss and norm: " + ", ".join(f"{a:.1e} {b:.1e}" for a, b in worst))


def skips(f, ranks, *flags):
    """One rank alone has rows, and so gradients that overflow: all skip. Weights and moments stay, the scale is halved."""
    program = f.program(f"skips-{ranks}", "--ranks", ranks, "--batch", 1, *flags)
    only = ("--global-batch", 1)
    _, before, _ = f.train(program, f"skips-{ranks}-before", "--steps", 1, "--lr", 0, *only)
    steps, after, said = f.train(program, f"skips-{ranks}-after", "--steps", 2, "--loss-scale-init", HUGE, *only)
    require([steps[s]["loss_scale"] for s in (1, 2)] == [HUGE, HUGE / 2], f"scales of {steps}")
    require(all(steps[s]["skipped"] and steps[s]["grad_norm"] is None for s in (1, 2)), f"not skipped: {steps}")
    require(steps[2]["skipped_steps"] == 2 and said.count("overflow: skipped") == 2, said)
    for name in ("model.safetensors", "master.safetensors"):
        same_bytes({name: tensors(before)[name]}, {name: tensors(after)[name]}, "weights of skipped steps")
    for name in ("exp_avg.safetensors", "exp_avg_sq.safetensors"):
        found = read_tensors(os.path.join(after, "step-000002", name))
        require(all(not any(data) for _, _, data in found.values()), f"{name} is not zero")
    found = manifest(after)
    require((found["loss_scale"], found["skipped"], found["step"]) == (HUGE / 4, 2, 2), f"manifest {found}")


def comes_down(f):
    """The same batch in every step: once the scale has come down, a run is the one that began with that scale, bit by bit, since
    skipped steps move neither weights nor AdamW's step; and the scale grows where there is a window without overflow."""
    program = f.program("down", "--ranks", 2, "--batch", 2, "--accumulate", 2, "--clip", "1.0")
    batch = f.tools.path("batch.bin")
    f.tools.call(f.tools.foregather, "tokens", "--bytes", f.tools.example("tiny-llama.json"), "-o", batch)
    with open(batch, "rb") as file:  # what one step takes, so that each step begins anew
        data = file.read()
    found = 2 * 2 * 2 * SEQ + 1
    with open(batch, "wb") as file:
        file.write(data[:8] + found.to_bytes(4, "little") + data[12 : 1024 + 2 * found])
    high, _, _ = f.train(program, "down-high", "--steps", 20, "--loss-scale-init", 2**26, "--loss-scale-window", 4, data=batch)
    first = next(s for s in sorted(high) if not high[s]["skipped"])
    require(2 < first < 12, f"the first update is at step {first}")
    low, _, _ = f.train(program, "down-low", "--steps", 21 - first, "--loss-scale-init", int(high[first]["loss_scale"]),
                        "--loss-scale-window", 4, data=batch)  # fmt: skip
    for s, row in low.items():
        other = high[s + first - 1]
        for key in ("loss", "grad_norm", "loss_scale", "skipped"):
            require(row[key] == other[key], f"{key} of step {s}: {row[key]} against {other[key]}")
    scales = [high[s]["loss_scale"] for s in sorted(high)]
    require(any(b == 2 * a for a, b in zip(scales, scales[1:])), f"the scale never grows: {scales}")


def agree(f):
    """Schedules, with overflows and growth between: the same bits."""
    runs = []
    for schedule in ("zero3", "compiled"):
        program = f.program(f"agree-{schedule}", "--ranks", 3, "--batch", 1, "--schedule", schedule, "--accumulate", 2)
        runs.append(f.train(program, f"agree-{schedule}", "--steps", 10, "--loss-scale-init", 2**24, "--loss-scale-window", 2))
    (steps, save, _), *others = runs
    skipped = [steps[s]["skipped"] for s in sorted(steps)]
    require(any(skipped) and not all(skipped), f"skipped {skipped}: the case shows nothing")
    for other_steps, other_save, _ in others:
        for s, row in steps.items():
            for key in ("loss", "grad_norm", "loss_scale", "skipped"):
                require(other_steps[s][key] == row[key], f"{key} of step {s}: {other_steps[s][key]} against {row[key]}")
        same_bytes(checkpoint(save), checkpoint(other_save), "checkpoints")


def resumes(f):
    """Stopped between overflows and growth."""
    program = f.program("agree-compiled", "--ranks", 3, "--batch", 1, "--accumulate", 2)
    options = ("--loss-scale-window", 3, "--loss-scale-hysteresis", 2)
    whole, save, _ = f.train(program, "resume-whole", "--steps", 16, "--loss-scale-init", 2**24, "--save-every", 9, *options)
    again, save_again, _ = f.train(program, "resume-again", "--steps", 16, *options, "--resume", os.path.join(save, "step-000009"))
    require(sorted(again) == list(range(10, 17)), f"steps {sorted(again)}")
    for s, row in again.items():
        for key in ("loss", "grad_norm", "loss_scale", "skipped", "skipped_steps"):
            require(row[key] == whole[s][key], f"{key} of step {s}: {row[key]} against {whole[s][key]}")
    same_bytes(checkpoint(os.path.join(save_again, "step-000016")), checkpoint(os.path.join(save, "step-000016")), "checkpoints")
    require(any(whole[s]["skipped"] for s in range(1, 10)), "nothing was skipped before the stop")


def damaged(f):
    """What a manifest says of the scale is believed only when it can be."""
    program = f.program("agree-compiled", "--ranks", 3, "--batch", 1, "--accumulate", 2)
    _, save, _ = f.train(program, "damaged", "--steps", 1)
    path = os.path.join(save, "step-000001", "manifest.json")
    whole = json.load(open(path))
    for change, text in (
        ({"loss_scale": 3}, "'loss_scale' is not a power of two"),
        ({"loss_scale": "big"}, "'loss_scale' is not a power of two"),
        ({"skipped": 2}, "more steps were skipped than done"),
        ({"skipped": "two"}, "'skipped' is not a whole number"),
        ({"good_steps": None}, "'good_steps' is not a whole number"),
    ):
        with open(path, "w") as file:
            json.dump({**whole, **change}, file)
        _, said = f.tools.call(program, "--data", f.tokens, "--steps", 2, "--resume", save, expect=1)
        require(text in said, f"{change}: {said[-400:]}")


def mistakes(f):
    program = f.program("agree-compiled", "--ranks", 3, "--batch", 1, "--accumulate", 2)
    run = (program, "--data", f.tokens)
    for options, status, text in (
        (("--loss-scale", 1000), 2, "'1000' is not dynamic or a power of two"),
        (("--loss-scale-init", 3), 2, "must be a power of two from 1 to 2^64"),
        (("--loss-scale", 8, "--loss-scale-window", 5), 2, "--loss-scale 8 stays"),
        (("--loss-scale-window", 0), 2, "must be at least 1"),
        (("--loss-scale-window", 2**30), 2, "are at most"),
        (("--loss-scale", HUGE, "--steps", 50), 1, "step 32: loss or gradients are not finite at a loss scale of 1099511627776, as"),
        (("--lr", "1e30", "--steps", 50, "--loss-scale-init", 4), 1, "at a loss scale of 1, and there is no smaller one"),
        (("--loss-scale", HUGE, "--dump-grads", f.tools.path("grads")), 1, "give a smaller one: --loss-scale 68719476736"),
    ):  # fmt: skip
        _, said = f.tools.call(*run, *options, expect=status)
        require(text in said, f"{options}: {said[-600:]}")
    plain = f.tools.path("plain", "program")
    f.tools.compile(f.tools.example("tiny-llama.json"), "--ranks", 1, "--batch", 1, "--precision", "bf16", out=plain)
    _, said = f.tools.call(plain, "--data", f.tokens, "--loss-scale", "dynamic", expect=2)
    require("computes in bf16 and does not scale its loss" in said, said)
    _, said = f.tools.call(plain, "--data", f.tokens, "--lr", "1e30", "--steps", 9, expect=1)
    require("is not finite; a smaller --lr or a longer --warmup may help" in said, said)


def main():
    tools, _ = open_tools()
    cases, f = Cases(), Fp16(tools)
    cases.run("fp16: follows f32", curve, f)
    cases.run("fp16: an overflow of one rank is skipped by 2", skips, f, 2)
    cases.run("fp16: an overflow of one rank is skipped by 3, clipped", skips, f, 3, "--clip", "1.0")
    cases.run("fp16: skipped steps change the scale alone", comes_down, f)
    cases.run("fp16: schedules agree, bitwise", agree, f)
    cases.run("fp16: resumes, bitwise", resumes, f)
    cases.run("fp16: manifests that cannot be", damaged, f)
    cases.run("fp16: mistakes, and no scale that helps", mistakes, f)
    tools.close()
    cases.end()


main()
