"""Where bf16 rounds: shallow models, one kind of operation each, against reference.py.

In a deep model every rounding that falls the other way is amplified by the next ones, so that the error says nothing
about where roundings stand. In these the stored gradients hardly differ: a rounding that is missing, or one too many,
changes a large part of a tensor's entries in the last bit, a difference in the order of sums a few. Each case first shows
that it would see a missing rounding: the reference without it must differ.
"""
import json
import random
import struct

import reference
from common import Cases, floats, open_tools, read_tensors, require

SAME = 0.01  # part of a tensor's entries that may differ: sums in another order, near ties; none is seen
SEEN = 0.10  # and the part that differs in some tensor when a rounding is missing

BATCH, SEQ, VOCAB, HIDDEN = 2, 8, 24, 16


def model(middle, params):
    """tokens -> embedding -> middle (from "x" to "y") -> head -> loss."""
    return {
        "foregather": 1,
        "name": "rounding",
        "dims": {"batch": BATCH, "seq": SEQ, "vocab": VOCAB, "hidden": HIDDEN, "heads": 4, "kv_heads": 2, "head_dim": 4},
        "inputs": {"tokens": {"role": "tokens", "shape": ["batch", "seq"]}, "labels": {"role": "labels", "shape": ["batch", "seq"]}},
        "params": {
            "embed": {"shape": ["vocab", "hidden"], "init": {"normal": 1}},
            "head": {"shape": ["vocab", "hidden"], "init": {"normal": 1}},
            **{name: {"shape": shape, "init": {"normal": 1}} for name, shape in params.items()},
        },
        "nodes": [
            {"op": "embedding", "in": ["tokens", "embed"], "out": "x"},
            *middle,
            {"op": "linear", "in": ["y", "head"], "out": "logits"},
            {"op": "cross_entropy", "in": ["logits", "labels"], "out": "loss"},
        ],
        "loss": "loss",
    }  # fmt: skip


def node(op, operands, out, **attributes):
    return {"op": op, "in": operands, "out": out, **attributes}


HEADS, KV_HEADS = ["batch", "seq", "heads", "head_dim"], ["batch", "seq", "kv_heads", "head_dim"]
MODELS = {
    "linear": model([node("linear", ["x", "w", "b"], "y")], {"w": ["hidden", "hidden"], "b": ["hidden"]}),
    "rmsnorm": model([node("rmsnorm", ["x", "w"], "y", eps=1e-5)], {"w": ["hidden"]}),
    "layernorm": model([node("layernorm", ["x", "w", "b"], "y", eps=1e-5)], {"w": ["hidden"], "b": ["hidden"]}),
    "silu": model([node("silu", ["x"], "y")], {}),
    "gelu_tanh": model([node("gelu_tanh", ["x"], "y")], {}),
    "mul": model([node("linear", ["x", "w"], "z"), node("mul", ["x", "z"], "y")], {"w": ["hidden", "hidden"]}),
    "add": model([node("linear", ["x", "w"], "z"), node("add", ["x", "z"], "y")], {"w": ["hidden", "hidden"]}),
    "rmsnorm-sum": model(
        [node("rmsnorm", ["x", "n"], "z", eps=1e-5), node("linear", ["z", "w"], "o"), node("add", ["x", "o"], "y")],
        {"n": ["hidden"], "w": ["hidden", "hidden"]},
    ),
    "rope": model(
        [
            {"op": "rope_table", "out": "table", "seq": "seq", "half": "head_dim / 2", "theta": 100},
            node("reshape", ["x"], "split", shape=HEADS),
            node("rope", ["split", "table"], "turned"),
            node("reshape", ["turned"], "y", shape=["batch", "seq", "hidden"]),
        ],
        {},
    ),
    "attention": model(
        [
            node("reshape", ["x"], "q", shape=HEADS),
            node("linear", ["x", "k"], "keys"),
            node("linear", ["x", "v"], "values"),
            node("reshape", ["keys"], "key_heads", shape=KV_HEADS),
            node("reshape", ["values"], "value_heads", shape=KV_HEADS),
            node("attention", ["q", "key_heads", "value_heads"], "attended", causal=True),
            node("reshape", ["attended"], "y", shape=["batch", "seq", "hidden"]),
        ],
        {"k": ["kv_heads * head_dim", "hidden"], "v": ["kv_heads * head_dim", "hidden"]},
    ),
}


def write_tensors(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


class Setting:
    """A model's file, seeded weights and inputs, as files and as the reference takes them."""

    def __init__(self, tools, op):
        source, chance = MODELS[op], random.Random(op)
        dims = source["dims"]
        self.path, self.weights_path, self.inputs_path = (tools.path(op, n) for n in ("model.json", "weights", "inputs"))
        with open(self.path, "w") as f:
            json.dump(source, f, indent=1)
        self.weights = {}
        for name, spec in source["params"].items():
            shape = [eval(d, {"__builtins__": {}}, dims) for d in spec["shape"]]
            n = shape[0] * (shape[1] if len(shape) > 1 else 1)
            self.weights[name] = reference.Tensor(shape, [struct.unpack("f", struct.pack("f", chance.gauss(0.3, 0.7)))[0] for _ in range(n)])
        ids = lambda: [chance.randrange(VOCAB) for _ in range(BATCH * SEQ)]
        self.inputs = {"tokens": reference.Tensor([BATCH, SEQ], ids()), "labels": reference.Tensor([BATCH, SEQ], ids())}
        pack = lambda dtype, code, ts: {n: (dtype, t.shape, struct.pack(f"<{len(t.data)}{code}", *t.data)) for n, t in ts.items()}
        write_tensors(self.weights_path, pack("F32", "f", self.weights))
        write_tensors(self.inputs_path, pack("I32", "i", self.inputs))

    def reference(self):
        return reference.step(self.path, self.inputs, self.weights, reference.bf16).grads


def differing(a, b):
    return sum(x != y for x, y in zip(a, b)) / len(b)


def rounds(tools, op):
    setting = Setting(tools, op)
    wanted = setting.reference()
    stored = reference.UNROUNDED
    reference.UNROUNDED = (*stored, op.split("-")[0], "reshape")  # which would round what is passed on
    without = setting.reference()
    reference.UNROUNDED = stored
    seen = max(differing(without[name], wanted[name]) for name in wanted)
    require(seen >= SEEN, f"a missing rounding changes {seen:.1%} of a tensor only: the case would not see it")

    program, grads = tools.path(op, "program"), tools.path(op, "grads.safetensors")
    tools.compile(setting.path, "--ranks", 1, "--precision", "bf16", out=program)
    tools.call(program, "--inputs", setting.inputs_path, "--weights", setting.weights_path, "--steps", 1, "--dump-grads", grads)
    got = read_tensors(grads)
    require(sorted(got) == sorted(wanted), f"gradients of {sorted(got)}, not of {sorted(wanted)}")
    parts = {name: differing(floats(got[name]).tolist(), wanted[name]) for name in wanted}
    worst = max(parts, key=parts.get)
    require(parts[worst] <= SAME, f"{parts[worst]:.1%} of the gradient of {worst} differ: {parts}")
    print(f"  a missing rounding changes {seen:.0%}; {parts[worst]:.1%} differ at most")


def main():
    tools, _ = open_tools()
    cases = Cases()
    for op in MODELS:
        cases.run(f"bf16: {op} rounds where it should", rounds, tools, op)
    tools.close()
    cases.end()


main()
