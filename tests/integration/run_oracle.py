"""One oracle model through the shipped command and the program it makes.

    run_oracle.py --build B --source S MODEL

At fp32, on 1, 2 and 3 ranks: loss, every gradient and ten AdamW losses against torch's. At the same rank count the
three schedules agree bit by bit: losses, gradients, checkpoints; at bf16 too. bf16 stays near fp32 (see BF16_*). With a
sharded vocabulary the same holds at the same tolerances; the tokens travel five at a time, so that pieces differ in size. The
searched schedule of each also runs in checked mode; with a sharded vocabulary it does so with all in host memory too.
With the head in pieces of eight tokens and gradients that add up whole, too: two micro-steps of the one batch.
"""
import json
import os

from common import Cases, Wrong, checkpoint, floats, near, open_tools, read_log, read_tensors, require, same_bytes

LOSS, GRADIENT, ADAMW = 2e-6, 2e-5, 5e-6
NEGLIGIBLE = 1e-6  # gradients that are zero but for rounding

SCHEDULES = ("zero3", "minimum", "compiled")
RANKS = ((1, 2), (2, 1), (3, 1))  # ranks, rows of each: the batch has two rows, so the third rank has none
SHARDED = ("--vocab", "sharded", "--vocab-chunk", 5)
FORMS = {"gathered": (), "pieces": ("--vocab-chunk", 8, "--accumulate", 2, "--accumulate-in", "whole"), "sharded": SHARDED, "offloaded": (*SHARDED, "--offload", "optimizer,activations,parameters")}
BASE = {"offloaded": "sharded"}  # what must give the same bits
OPTIMIZER = ("--lr", "1e-3", "--beta1", "0.9", "--beta2", "0.95", "--eps", "1e-8", "--weight-decay", "0.1")

# bf16 keeps 8 significant bits: one rounding is off by at most 2^-9 = 0.2 % of a value. A loss near 6 is a log-sum-exp
# in fp32 over logits that were rounded once; the errors of single logits average out. A gradient entry is a sum of
# products of rounded values; measured as a whole, its error is a few roundings.
# That roundings stand where they should is shown by test_rounding.py: here every rounding that falls the other way is
# amplified by all that follow, so that the error would be much the same.
BF16_LOSS = 1e-3  # 4.2e-4 is seen
BF16_GRADIENT = 4e-2  # of the tensor's norm; 2.8e-2 is seen
BF16_ADAMW = 5e-3  # 2.1e-3 is seen; without fp32 masters the updates of the gains, near 1, would be lost


class Oracle:
    def __init__(self, tools, name):
        self.tools, self.name = tools, name
        self.expected = json.load(open(tools.data(name, "expected.json")))
        self.grads = read_tensors(tools.data(name, "grads.safetensors"))
        self.results = {}

    def outcome(self, ranks, batch, precision, schedule, form):
        """Compiles, runs one step for its gradients and ten for their losses; what came out."""
        tools, data = self.tools, self.tools.data
        folder = f"{self.name}-{ranks}-{precision}-{schedule}-{form}"
        program = tools.path(folder, "program")
        tools.compile(data(self.name, "model.json"), "--ranks", ranks, "--batch", batch, "--schedule", schedule,
                      "--precision", precision, "--decay", "all", *FORMS[form], out=program)  # fmt: skip
        common = [program, "--inputs", data(self.name, "inputs.safetensors"), "--weights",
                  data(self.name, "weights.safetensors"), "--global-batch", 2, *OPTIMIZER]  # fmt: skip
        grads, log, save = (tools.path(folder, word) for word in ("grads.safetensors", "run.jsonl", "save"))
        tools.call(*common, "--steps", 1, "--dump-grads", grads)
        tools.call(*common, "--steps", 10, "--log", log, "--save", save)
        if schedule == "compiled":
            self.watched(common, grads)
        os.remove(program)
        steps = read_log(log)
        require(sorted(steps) == list(range(1, 11)), f"the log has steps {sorted(steps)}, not 1 to 10")
        with open(grads, "rb") as f:
            result = {"losses": [steps[s]["loss"] for s in range(1, 11)], "grads": f.read(), "save": save, "path": grads}
        self.results[ranks, precision, schedule, form] = result
        return result

    def watched(self, common, grads):
        """Checked mode traps nothing, and neither it nor poison changes a bit."""
        for mode in ("--checked", "--poison"):
            again = grads + mode
            self.tools.call(*common, "--steps", 1, "--dump-grads", again, mode)
            with open(grads, "rb") as a, open(again, "rb") as b:
                require(a.read() == b.read(), f"{mode} changes gradients")
            os.remove(again)

    def gradients(self, path, error_of, tolerance):
        """Every gradient against torch's, by a measure of error."""
        got = read_tensors(path)
        require(sorted(got) == sorted(self.grads), f"gradients of {sorted(got)}, not of {sorted(self.grads)}")
        worst = 0.0
        for name, wanted in self.grads.items():
            require(got[name][1] == wanted[1], f"gradient of {name} has shape {got[name][1]}, not {wanted[1]}")
            a, b = floats(got[name]), floats(wanted)
            if max(map(abs, b)) < NEGLIGIBLE:
                continue
            error = error_of(a, b)
            require(error <= tolerance, f"gradient of {name} is off by {error:.3g}, allowed {tolerance:g}")
            worst = max(worst, error)
        return worst

    def reproduces(self, ranks, batch, form="gathered"):
        result = self.outcome(ranks, batch, "fp32", "zero3", form)
        loss = near(result["losses"][0], self.expected["loss"], LOSS, "loss")
        worst = self.gradients(result["path"], largest_error, GRADIENT)
        steps = [near(a, b, ADAMW, f"loss of step {i + 1}")
                 for i, (a, b) in enumerate(zip(result["losses"], self.expected["adamw"]["losses"]))]  # fmt: skip
        print(f"  errors: loss {loss:.1e}, gradients {worst:.1e}, AdamW losses {max(steps):.1e}")

    def stays_near(self, ranks, batch, form="gathered"):
        result = self.outcome(ranks, batch, "bf16", "zero3", form)
        loss = near(result["losses"][0], self.expected["loss"], BF16_LOSS, "loss")
        worst = self.gradients(result["path"], norm_error, BF16_GRADIENT)
        steps = [near(a, b, BF16_ADAMW, f"loss of step {i + 1}")
                 for i, (a, b) in enumerate(zip(result["losses"], self.expected["adamw"]["losses"]))]  # fmt: skip
        print(f"  errors: loss {loss:.1e}, gradients {worst:.1e}, AdamW losses {max(steps):.1e}")

    def agrees(self, ranks, batch, precision, schedule, form="gathered"):
        base = self.results.get((ranks, precision, "zero3", BASE.get(form, form)))
        if base is None:
            raise Wrong("there is no zero3 run to compare with")
        result = self.outcome(ranks, batch, precision, schedule, form)
        require(result["losses"] == base["losses"], f"losses {result['losses']} against {base['losses']}")
        same_bytes({"gradients": result["grads"]}, {"gradients": base["grads"]}, "gradients")
        same_bytes(checkpoint(result["save"]), checkpoint(base["save"]), "checkpoints")


def largest_error(a, b):
    return max(abs(x - y) for x, y in zip(a, b)) / max(map(abs, b))


def norm_error(a, b):
    return (sum((x - y) ** 2 for x, y in zip(a, b)) / sum(y * y for y in b)) ** 0.5


def main():
    tools, (name,) = open_tools()
    cases, oracle = Cases(), Oracle(tools, name)
    for ranks, batch in RANKS:
        where = f"{name} on {ranks} rank{'s' if ranks > 1 else ''}"
        cases.run(f"{where}: loss, gradients and AdamW as torch's", oracle.reproduces, ranks, batch)
        cases.run(f"{where}: bf16 near fp32", oracle.stays_near, ranks, batch)
        for precision in ("fp32", "bf16"):
            for schedule in SCHEDULES[1:]:
                cases.run(f"{where}: {schedule} as zero3, bitwise, {precision}", oracle.agrees, ranks, batch, precision, schedule)
        cases.run(f"{where}, vocabulary sharded: loss, gradients and AdamW as torch's", oracle.reproduces, ranks, batch, "sharded")
    where = f"{name} on 2 ranks, the head in pieces, gradients of two micro-steps added up whole"
    cases.run(f"{where}: loss, gradients and AdamW as torch's", oracle.reproduces, 2, 1, "pieces")
    for ranks, batch, precision in ((2, 1, "bf16"), (3, 1, "fp32")):
        where = f"{name} on {ranks} ranks, vocabulary sharded"
        if precision == "bf16":
            cases.run(f"{where}: bf16 near fp32", oracle.stays_near, ranks, batch, "sharded")
        cases.run(f"{where}: compiled as zero3, bitwise, {precision}", oracle.agrees, ranks, batch, precision, "compiled", "sharded")
    cases.run(f"{name} on 2 ranks, vocabulary sharded, all offloaded: compiled as zero3 without, bitwise, bf16", oracle.agrees, 2, 1, "bf16", "compiled", "offloaded")
    tools.close()
    cases.end()


main()
