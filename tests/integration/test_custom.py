"""Custom functions: a user's own C, trained against the same model of built-in ops, under every schedule, and refused where
it does not keep to what its node says."""
import json
import os
import shutil

from common import Cases, checkpoint, floats, near, open_tools, read_log, read_tensors, require, same_bytes

STEPS = 4
BF16_LOSS = 5e-4  # the built-in ops round three times where the function rounds once; measured: 6e-5
GRADIENT = 1e-6  # of the largest entry; measured: no difference

# y = x w, z = x / 2 for a parameter w over the last dimension; w's gradient sums over rows.
SCALE_C = """
#include "scale.h"

void custom_scale(const float *x, const float *w, float *y, float *z, const FgCustom *call)
{
    int64_t n = fg_custom_elements(call, 0), cols = fg_custom_dim(call, 0, -1);
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] * w[i % cols];
        z[i] = x[i] * HALF;
    }
}

void custom_scale_back(const float *x, const float *w, const float *dy, const float *dz, float *dx, float *dw,
                       const FgCustom *call)
{
    int64_t n = fg_custom_elements(call, 0), cols = fg_custom_dim(call, 0, -1);
    for (int64_t c = 0; c < cols; c++)
        dw[c] = 0;
    for (int64_t i = 0; i < n; i++) {
        dx[i] = dy[i] * w[i % cols] + dz[i] * HALF;
        dw[i % cols] += dy[i] * x[i];
    }
}
"""
# x where the token is even, else 0: integers among the operands; w is not trained, and the gradient makes x's alone.
EVEN_C = SCALE_C + """
void custom_even(const float *x, const float *w, const int32_t *tokens, float *y, float *z, const FgCustom *call)
{
    int64_t n = fg_custom_elements(call, 0), cols = fg_custom_dim(call, 0, -1);
    for (int64_t i = 0; i < n; i++) {
        y[i] = tokens[i / cols] % 2 ? 0 : x[i] * w[i % cols];
        z[i] = x[i] * HALF;
    }
}

void custom_even_back(const float *w, const int32_t *tokens, const float *dy, float *dx, const FgCustom *call)
{
    int64_t n = fg_custom_elements(call, 2), cols = fg_custom_dim(call, 2, -1);
    for (int64_t i = 0; i < n; i++)
        dx[i] = tokens[i / cols] % 2 ? 0 : dy[i] * w[i % cols];
}
"""
SCALE_H = '#include "fg_custom.h"\n#define HALF 0.5f\n'


def scale_model(nodes):
    return {
        "foregather": 1,
        "name": "scale",
        "dims": {"batch": 4, "seq": 8, "vocab": 256, "hidden": 20, "layers": 2},
        "inputs": {"tokens": {"role": "tokens", "shape": ["batch", "seq"]}, "labels": {"role": "labels", "shape": ["batch", "seq"]}},
        "params": {"embed": {"shape": ["vocab", "hidden"], "init": {"normal": 1}}, "w": {"shape": ["hidden"], "init": {"uniform": 1}}},
        "nodes": [
            {"op": "embedding", "in": ["tokens", "embed"], "out": "embedded"},
            {"repeat": "layers", "carry": {"x": {"from": "embedded", "next": "sum"}},
             "params": {"layers.{i}.v": {"shape": ["hidden"], "init": {"uniform": 1}}},
             "nodes": [*nodes("x", "w", "y", "z"), {"op": "mul", "in": ["z", "layers.{i}.v"], "out": "q"},
                       {"op": "add", "in": ["y", "q"], "out": "sum"}]},
            {"op": "linear", "in": ["x", "embed"], "out": "logits"},
            {"op": "cross_entropy", "in": ["logits", "labels"], "out": "loss"},
        ],
        "loss": "loss",
    }  # fmt: skip


def scale_custom(x, w, y, z):
    return [{"op": "custom", "source": "kernels/scale.c", "function": "custom_scale", "in": [x, w], "out": [y, z],
             "shapes": [["batch", "seq", "hidden"], ["batch", "seq", "hidden"]],
             "gradient": {"function": "custom_scale_back"}}]  # fmt: skip


def scale_builtin(x, w, y, z):
    return [{"op": "mul", "in": [x, w], "out": y}, {"op": "scale", "in": [x], "out": z, "factor": 0.5}]


class Setting:
    def __init__(self, tools):
        self.tools = tools
        self.data = tools.path("data.bin")
        tools.call(tools.foregather, "tokens", "--bytes", os.path.join(tools.source, "README.md"), "-o", self.data)
        self.folder = os.path.dirname(tools.path("model", "x"))
        for ending in ("json", "c", "cu"):
            shutil.copy(tools.example(f"custom-activation.{ending}"), self.folder)
        os.makedirs(os.path.join(self.folder, "kernels"))
        self.write("kernels/scale.c", SCALE_C)
        self.write("kernels/scale.h", SCALE_H)
        self.write("scale.json", json.dumps(scale_model(scale_custom)))
        self.write("scale-builtin.json", json.dumps(scale_model(scale_builtin)))
        with open(self.model("custom-activation.json")) as f:
            model = json.load(f)
        nodes = model["nodes"][2]["nodes"]
        at = next(i for i, node in enumerate(nodes) if node["op"] == "custom")
        nodes[at : at + 1] = [
            {"op": "relu", "in": ["gate"], "out": "r"},
            {"op": "mul", "in": ["r", "r"], "out": "rr"},
            {"op": "mul", "in": ["rr", "up"], "out": "gated"},
        ]
        self.write("builtin.json", json.dumps(model))

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w") as f:
            f.write(text)

    def model(self, name):
        return os.path.join(self.folder, name)

    def train(self, model, name, *flags, run=()):
        program, log = self.tools.path(name, "program"), self.tools.path(name, "log.jsonl")
        self.tools.compile(self.model(model), *flags, out=program)
        grads, save = self.tools.path(name, "grads"), self.tools.path(name, "save")
        common = (program, "--data", self.data, "--lr", "1e-3", "--seed", 7, *run)
        self.tools.call(*common, "--steps", STEPS, "--log", log, "--save", save)
        self.tools.call(*common, "--steps", 1, "--dump-grads", grads)
        return read_log(log), checkpoint(os.path.join(save, f"step-{STEPS:06d}")), read_tensors(grads)


def as_builtin(s):
    """Every operation of the function is one of the built-in ops', in their order: the same bits."""
    log, saved, _ = s.train("custom-activation.json", "f32", "--ranks", 2)
    other, other_saved, _ = s.train("builtin.json", "builtin", "--ranks", 2)
    for step in range(1, STEPS + 1):
        require(log[step]["loss"] == other[step]["loss"], f"loss of step {step}: {log[step]} against {other[step]}")
    tensors = lambda files: {name: data for name, data in files.items() if not name.endswith("manifest.json")}
    same_bytes(tensors(saved), tensors(other_saved), "the checkpoint")


def in_bf16(s):
    log, _, _ = s.train("custom-activation.json", "bf16", "--ranks", 2, "--precision", "bf16")
    other, _, _ = s.train("builtin.json", "builtin-bf16", "--ranks", 2, "--precision", "bf16")
    worst = max(near(log[i]["loss"], other[i]["loss"], BF16_LOSS, f"loss of step {i}") for i in range(1, STEPS + 1))
    print(f"  losses differ by {worst:.1e} at most")


def schedules_agree(s, model, *flags):
    runs = [
        s.train(model, f"{model}-{len(flags)}-{name}", *flags, *more, run=run)[1]
        for name, more, run in (
            ("zero3", ("--schedule", "zero3"), ()),
            ("compiled", (), ("--checked",)),
            ("recompute", ("--recompute", "full"), ("--checked",)),
            ("zero3-recompute", ("--schedule", "zero3", "--recompute", "full"), ()),
        )
    ]
    for run in runs[1:]:
        same_bytes(run, runs[0], "the checkpoint")


def parameters(s):
    """A parameter among the operands, used in every layer, with two results and micro-steps: gradients near the built-ins'."""
    flags = ("--ranks", 3, "--accumulate", 2, "--clip", "1.0")
    _, _, grads = s.train("scale.json", "scale", *flags, run=("--checked",))
    _, _, wanted = s.train("scale-builtin.json", "scale-builtin", *flags)
    require(sorted(grads) == sorted(wanted) and "w" in grads, f"gradients of {sorted(grads)}")
    worst = 0
    for name in grads:
        got, want = floats(grads[name]), floats(wanted[name])
        top = max(abs(x) for x in want)
        require(top > 0, f"the gradient of {name} is zero")
        worst = max(worst, max(abs(a - b) for a, b in zip(got, want)) / top)
    require(worst <= GRADIENT, f"a gradient is off by {worst:.1e} of its largest entry")
    print(f"  gradients differ by {worst:.1e} of the largest at most")


def unread(s):
    """Integers, an operand that is not trained, a result that nothing reads, a gradient of one operand alone."""
    s.write("kernels/even.c", EVEN_C)
    model = scale_model(lambda x, w, y, z: [
        {"op": "custom", "source": "kernels/even.c", "function": "custom_even", "in": [x, w, "tokens"], "out": [y, z],
         "shapes": [["batch", "seq", "hidden"]] * 2,
         "gradient": {"function": "custom_even_back", "takes": [w, "tokens", f"d({y})"], "returns": [x]}}])  # fmt: skip
    model["nodes"][1]["nodes"][1:] = [{"op": "mul", "in": ["y", "layers.{i}.v"], "out": "sum"}]
    model["params"]["w"]["trainable"] = False
    s.write("even.json", json.dumps(model))
    _, saved, grads = s.train("even.json", "even", "--ranks", 2, run=("--checked",))
    require("w" not in grads and any(floats(grads["embed"])), f"gradients of {sorted(grads)}")
    _, other, _ = s.train("even.json", "even-zero3", "--ranks", 2, "--schedule", "zero3")
    same_bytes(saved, other, "the checkpoint")


def spoiled(s, name, old, new):
    """A model with a fault in its source; the program."""
    require(old in SCALE_C, "the fault has no place")
    s.write("kernels/bad.c", SCALE_C.replace(old, new))
    with open(s.model("scale.json")) as f:
        s.write("bad.json", f.read().replace("kernels/scale.c", "kernels/bad.c"))
    program = s.tools.path(name, "program")
    s.tools.compile(s.model("bad.json"), "--ranks", 2, out=program)
    return program


def caught(s, name, old, new, says):
    program = spoiled(s, name, old, new)
    _, said = s.tools.call(program, "--checked", "--data", s.data, "--steps", 2, expect=1)
    require(says in said and "custom" in said, f"it said: {said}")


def not_linked(s):
    """What libclang cannot see, the linker does; nothing is left behind."""
    s.write("kernels/bad.c", SCALE_C.replace("z[i] = x[i] * HALF;", "z[i] = half_of(x[i]);").replace("#define", "").replace(
        '#include "scale.h"', '#include "scale.h"\nfloat half_of(float x);'))  # fmt: skip
    with open(s.model("scale.json")) as f:
        s.write("bad.json", f.read().replace("kernels/scale.c", "kernels/bad.c"))
    program = s.tools.path("unlinked", "program")
    _, said = s.tools.call(s.tools.foregather, "compile", s.model("bad.json"), "-o", program, expect=1)
    require("half_of" in said and not os.path.exists(program), f"it said: {said}")


def shared_object(s):
    """--emit so holds the functions, and --emit c names the files that its builder must add."""
    so, text = s.tools.path("shared", "program.so"), s.tools.path("shared", "program.c")
    s.tools.call(s.tools.foregather, "compile", s.model("scale.json"), "--emit", "so", "-o", so)
    s.tools.call(s.tools.foregather, "compile", s.model("scale.json"), "--emit", "c", "-o", text)
    with open(so, "rb") as f:
        require(b"custom_scale_back" in f.read(), "the shared object lacks the function")
    with open(text) as f:
        require("/* in kernels/scale.c */" in f.read(), "the text does not name the source")


def main():
    tools, _ = open_tools()
    cases = Cases()
    s = Setting(tools)
    cases.run("custom: the example's numbers are the built-in ops', bit by bit", as_builtin, s)
    cases.run("custom: in bf16 near the built-in ops", in_bf16, s)
    cases.run("custom: schedules agree bit by bit, fp32", schedules_agree, s, "custom-activation.json", "--ranks", 2)
    cases.run("custom: schedules agree bit by bit, bf16 and clipped", schedules_agree, s, "custom-activation.json", "--ranks", 3,
              "--precision", "bf16", "--clip", "1.0", "--dim", "layers=1")  # fmt: skip
    cases.run("custom: schedules agree bit by bit, a parameter in every layer", schedules_agree, s, "scale.json", "--ranks", 2)
    cases.run("custom: parameters as operands", parameters, s)
    cases.run("custom: integers, unread results, one gradient of several", unread, s)
    # Beyond both results: the end of one may be the begin of the other, which the call may write.
    cases.run("custom: a write beyond the results is caught", caught, s, "beyond", "z[i] = x[i] * HALF;",
              "z[i] = x[i] * HALF, y[i + 1] = z[i + 1] = 3e33f;", "write outside the declared effects")  # fmt: skip
    cases.run("custom: a write to an operand is caught", caught, s, "operand", "z[i] = x[i] * HALF;",
              "z[i] = x[i] * HALF, ((float *)x)[i] = 0;", "write outside the declared effects")  # fmt: skip
    cases.run("custom: a result that is not written is caught", caught, s, "unwritten", "z[i] = x[i] * HALF;",
              "if (i) z[i] = x[i] * HALF;", "a declared result was not written")  # fmt: skip
    cases.run("custom: a function that is missing at the link", not_linked, s)
    cases.run("custom: shared objects and texts", shared_object, s)
    tools.close()
    cases.end()


main()
