"""A second implementation of a training step, from the model's JSON alone, in plain Python: one rank, exact sums (doubles),
and one rounding where an operation's result is stored. It says what low precision must give, and it catches a rounding
point that is missing or too many, which comparing with fp32 alone would not.

Storage rounds: parameters, every operation's result, every gradient of an intermediate (again at each addition), and a
parameter's gradient after each contribution, the last use first. Inside an operation nothing rounds. Log-sum-exps, the
loss and the rope table are not stored in low precision. What linear makes for a sum alone, and what it and the norms make
for the gradient of their input, is added to the other term before it is stored: those sums round once.
"""
import array
import collections
import json
import math
import struct
from operator import mul


def bf16(values):
    """Rounded to bf16, nearest even."""
    bits = array.array("I", array.array("f", values).tobytes())
    return array.array("f", struct.pack(f"<{len(bits)}I", *((u + 0x7FFF + (u >> 16 & 1)) & 0xFFFF0000 for u in bits))).tolist()


def exact(values):
    return values


class Tensor:
    """Entries in row-major order; a gradient once backward has come by."""

    def __init__(self, shape, data):
        self.shape, self.data, self.grad = list(shape), data, None
        self.place, self.exact = -1, None  # where it is made, -1: it is there; linear's result before it is rounded
        assert math.prod(self.shape) == len(data), (self.shape, len(data))

    def rows(self, data=None):
        data, n = self.data if data is None else data, self.shape[-1]
        return [data[i : i + n] for i in range(0, len(data), n)]


def flat(rows):
    return [x for row in rows for x in row]


def dot(a, b):
    return sum(map(mul, a, b))


def columns(rows):
    return list(map(list, zip(*rows)))


def times(a, b_columns):
    return [[dot(row, column) for column in b_columns] for row in a]


# Each operation: (operand tensors, attributes) -> (shape, entries, backward), backward(gradient) -> gradients of the
# operands, None where there is none.


def embedding(ids, w, padding_idx=-1):
    rows = w.rows()

    def backward(g):
        dw = [[0.0] * w.shape[1] for _ in range(w.shape[0])]
        for i, row in zip(ids.data, Tensor([len(ids.data), w.shape[1]], g).rows()):
            if i != padding_idx:
                dw[i] = [a + b for a, b in zip(dw[i], row)]
        return None, flat(dw)

    return ids.shape + [w.shape[1]], flat(rows[i] for i in ids.data), backward


def linear(x, w, b=None, layout="out_in"):
    by_out = w.rows() if layout == "out_in" else columns(w.rows())
    n_out = len(by_out)
    y = times(x.rows(), by_out)
    if b:
        y = [[v + c for v, c in zip(row, b.data)] for row in y]

    def backward(g):
        rows = [g[i : i + n_out] for i in range(0, len(g), n_out)]
        dx = times(rows, columns(by_out))
        dw = times(columns(rows), columns(x.rows()))
        dw = dw if layout == "out_in" else columns(dw)
        return flat(dx), flat(dw), *([list(map(sum, zip(*rows)))] if b else [])

    return x.shape[:-1] + [n_out], flat(y), backward


def rmsnorm(x, w, eps=1e-6):
    n = x.shape[-1]
    scales = [(dot(row, row) / n + eps) ** -0.5 for row in x.rows()]

    def backward(g):
        dx, dw = [], [0.0] * n
        for row, s, dy in zip(x.rows(), scales, x.rows(g)):
            gw = list(map(mul, dy, w.data))
            c = dot(gw, row) * s**3 / n
            dx += [a * s - c * v for a, v in zip(gw, row)]
            dw = [d + a * v * s for d, a, v in zip(dw, dy, row)]
        return dx, dw

    return x.shape, [v * s * a for row, s in zip(x.rows(), scales) for v, a in zip(row, w.data)], backward


def layernorm(x, w, b, eps=1e-5):
    n, hats, scales = x.shape[-1], [], []
    for row in x.rows():
        mean = sum(row) / n
        scales.append((sum((v - mean) ** 2 for v in row) / n + eps) ** -0.5)
        hats.append([(v - mean) * scales[-1] for v in row])

    def backward(g):
        dx, dw, db = [], [0.0] * n, [0.0] * n
        for hat, s, dy in zip(hats, scales, x.rows(g)):
            gw = list(map(mul, dy, w.data))
            m, c = sum(gw) / n, dot(gw, hat) / n
            dx += [s * (a - m - h * c) for a, h in zip(gw, hat)]
            dw = [d + a * h for d, a, h in zip(dw, dy, hat)]
            db = [d + a for d, a in zip(db, dy)]
        return dx, dw, db

    return x.shape, [h * a + c for hat in hats for h, a, c in zip(hat, w.data, b.data)], backward


def rope_table(seq, half, theta=10000, factor=0, low=1, high=4, original=8192):
    frequencies = []
    for i in range(half):
        f = theta ** (-i / half)
        if factor > 0:
            wave = 2 * math.pi / f
            if wave > original / low:
                f /= factor
            elif wave >= original / high:
                s = (original / wave - low) / (high - low)
                f = (1 - s) * f / factor + s * f
        frequencies.append(f)
    angles = [t * f for t in range(seq) for f in frequencies]
    return [2, seq, half], [math.cos(a) for a in angles] + [math.sin(a) for a in angles], None


def rope(x, table):
    batch, seq, heads, dim = x.shape
    half, places = dim // 2, seq * (dim // 2)

    def turn(data, sign):
        out = []
        for r, row in enumerate(x.rows(data)):
            at = r // heads % seq * half
            cos, sin = table.data[at : at + half], table.data[places + at : places + at + half]
            out += [a * c - sign * b * s for a, b, c, s in zip(row, row[half:], cos, sin)]
            out += [b * c + sign * a * s for a, b, c, s in zip(row, row[half:], cos, sin)]
        return out

    return x.shape, turn(x.data, 1), lambda g: (turn(g, -1), None)


def attention(q, k, v, causal=True):
    assert causal
    batch, seq, heads, dim = q.shape
    group, scale = heads // k.shape[2], dim**-0.5

    def split(tensor, data):
        n, rows = tensor.shape[2], tensor.rows(data)
        return [[rows[(b * seq + t) * n + h] for t in range(seq)] for b in range(batch) for h in range(n)]

    def join(parts, n):
        return flat(parts[b * n + h][t] for b in range(batch) for t in range(seq) for h in range(n))

    qs, ks, vs = split(q, q.data), split(k, k.data), split(v, v.data)
    out, chances = [], []
    for h, head in enumerate(qs):
        hk, p = h // group, []
        for t, row in enumerate(head):
            scores = [dot(row, ks[hk][s]) * scale for s in range(t + 1)]
            top = max(scores)
            e = [math.exp(s - top) for s in scores]
            p.append([x / sum(e) for x in e])
        chances.append(p)
        out.append([[dot(row, column) for column in columns(vs[hk][: t + 1])] for t, row in enumerate(p)])
    result = Tensor(q.shape, join(out, heads))

    def backward(g):
        # What was stored of the result is what its gradient's mean is made from.
        stored, gs = split(q, result.data), split(q, g)
        zero = lambda parts: [[[0.0] * dim for _ in part] for part in parts]
        dq, dk, dv = zero(qs), zero(ks), zero(vs)
        for h in range(len(qs)):
            hk = h // group
            for t in range(seq):
                go, delta = gs[h][t], dot(gs[h][t], stored[h][t])
                for s, p in enumerate(chances[h][t]):
                    d = p * (dot(go, vs[hk][s]) - delta) * scale
                    dv[hk][s] = [a + p * b for a, b in zip(dv[hk][s], go)]
                    dq[h][t] = [a + d * b for a, b in zip(dq[h][t], ks[hk][s])]
                    dk[hk][s] = [a + d * b for a, b in zip(dk[hk][s], qs[h][t])]
        return join(dq, heads), join(dk, k.shape[2]), join(dv, k.shape[2])

    backward.result = result
    return q.shape, result.data, backward


def elementwise(f, derivative):
    def op(x):
        return x.shape, list(map(f, x.data)), lambda g: (list(map(mul, g, map(derivative, x.data))),)

    return op


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def gelu_inner(x):
    return math.tanh(0.7978845608028654 * (x + 0.044715 * x**3))


def gelu_tanh_derivative(x):
    t = gelu_inner(x)
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * x * x)


def add(a, b):
    n = len(b.data)

    def backward(g):
        return g, g if n == len(g) else [sum(g[i::n]) for i in range(n)]

    return a.shape, [x + b.data[i % n] for i, x in enumerate(a.data)], backward


def multiply(a, b):
    return a.shape, list(map(mul, a.data, b.data)), lambda g: (list(map(mul, g, b.data)), list(map(mul, g, a.data)))


def reshape(x, shape):
    return shape, x.data, lambda g: (g,)


def cut(x, axis, start, count):
    inner, size = math.prod(x.shape[axis + 1 :]), x.shape[axis]
    outer = math.prod(x.shape[:axis])
    spans = [((o * size + start) * inner, (o * size + start + count) * inner) for o in range(outer)]

    def backward(g):
        dx = [0.0] * len(x.data)
        for i, (a, b) in enumerate(spans):
            dx[a:b] = g[i * (b - a) : (i + 1) * (b - a)]
        return (dx,)

    shape = x.shape[:axis] + [count] + x.shape[axis + 1 :]
    return shape, flat(x.data[a:b] for a, b in spans), backward


def cross_entropy(logits, labels):
    valid = sum(label != -100 for label in labels.data)
    loss, dlogits = 0.0, []
    for row, label in zip(logits.rows(), labels.data):
        if label == -100:
            dlogits += [0.0] * len(row)
            continue
        top = max(row)
        total = sum(math.exp(x - top) for x in row)
        loss += math.log(total) + top - row[label]
        dlogits += [(math.exp(x - top) / total - (i == label)) / valid for i, x in enumerate(row)]
    return [], [loss / valid], lambda g: (dlogits, None)


OPS = {
    "embedding": embedding, "linear": linear, "rmsnorm": rmsnorm, "layernorm": layernorm, "rope_table": rope_table,
    "rope": rope, "attention": attention, "add": add, "mul": multiply, "reshape": reshape, "slice": cut,
    "cross_entropy": cross_entropy,
    "silu": elementwise(lambda x: x * sigmoid(x), lambda x: sigmoid(x) * (1 + x * (1 - sigmoid(x)))),
    "gelu_tanh": elementwise(lambda x: 0.5 * x * (1 + gelu_inner(x)), gelu_tanh_derivative),
}  # fmt: skip
UNROUNDED = ("rope_table", "cross_entropy")
SUMS_OF_GRADIENTS = ("linear", "rmsnorm", "layernorm")  # add the gradient of their first operand to what is there


def uses(nodes):
    """How often each name is read."""
    count = collections.Counter()
    for node in nodes:
        if "repeat" in node:
            count += uses(node["nodes"])
            count.update(name for c in node["carry"].values() for name in c.values())
        else:
            count.update(node.get("in", ()))
    return count


class Step:
    """One forward and backward pass of a model file over given inputs and weights (name -> Tensor)."""

    def __init__(self, model, inputs, weights, rounded=exact):
        self.rounded, self.weights, self.values = rounded, weights, dict(inputs)
        self.tape, self.dims, self.params = [], {}, {}
        for name, value in model["dims"].items():
            self.dims[name] = self.number(value)
        self.uses = uses(model["nodes"])
        self.declare(model["params"], "")
        self.run(model["nodes"])
        self.loss = self.values[model["loss"]].data[0]
        self.backward(self.values[model["loss"]])
        self.grads = {name: t.grad for name, t in self.params.items() if t.grad is not None}

    def number(self, value):
        return eval(value.replace("/", "//"), {"__builtins__": {}}, self.dims) if isinstance(value, str) else value

    def declare(self, params, prefix):
        for name, spec in params.items():
            tensor = self.weights[prefix + name]
            assert tensor.shape == [self.number(d) for d in spec["shape"]], (prefix + name, tensor.shape)
            tensor = Tensor(tensor.shape, self.rounded(tensor.data))
            self.params[prefix + name] = tensor
            for key in (name, *spec.get("tied", ())):
                self.values[key] = tensor

    def run(self, nodes):
        for node in nodes:
            if "repeat" in node:
                self.repeat(node)
            else:
                self.node(node)

    def repeat(self, block):
        carried = {name: self.values[c["from"]] for name, c in block["carry"].items()}
        for i in range(self.number(block["repeat"])):
            prefix = block["prefix"].replace("{%s}" % block["index"], str(i))
            self.values.update(carried)
            self.declare(block["params"], prefix)
            self.run(block["nodes"])
            carried = {name: self.values[c["next"]] for name, c in block["carry"].items()}
        self.values.update(carried)

    def node(self, node):
        attributes = {k: v for k, v in node.items() if k not in ("op", "in", "out")}
        for key, value in attributes.items():
            if key == "shape":
                attributes[key] = [self.number(d) for d in value]
            elif key != "layout":
                attributes[key] = self.number(value)
        operands = [self.values[name] for name in node.get("in", ())]
        terms = self.terms(node["in"], operands) if node["op"] == "add" else operands
        shape, data, backward = OPS[node["op"]](*terms, **attributes)
        out = Tensor(shape, data if node["op"] in UNROUNDED else self.rounded(data))
        if node["op"] == "linear":
            out.exact = Tensor(shape, data)
        if hasattr(backward, "result"):
            backward.result.data = out.data
        self.values[node["out"]] = out
        out.place = len(self.tape)
        self.tape.append((out, operands, backward, node["op"]))

    def terms(self, names, operands):
        """A sum's operands; the one made later is not rounded where linear makes it for the sum alone."""
        if operands[0].shape != operands[1].shape:
            return operands
        later = max((0, 1), key=lambda i: operands[i].place)
        alone = operands[later].exact and self.uses[names[later]] == 1
        return [t.exact if alone and i == later else t for i, t in enumerate(operands)]

    def backward(self, loss):
        loss.grad = [1.0]
        for out, operands, backward, op in reversed(self.tape):
            if out.grad is None or backward is None:
                continue
            for i, (operand, g) in enumerate(zip(operands, backward(out.grad))):
                if g is None:
                    continue
                if operand.grad is None:
                    operand.grad = self.rounded(g)
                else:
                    g = self.rounded(g) if self.twice(operand, op, i) else g
                    operand.grad = self.rounded([a + b for a, b in zip(operand.grad, g)])

    def twice(self, operand, op, i):
        """An intermediate's second gradient is stored before it is added, unless its maker adds it; a parameter's is added
        as it comes."""
        return not (i == 0 and op in SUMS_OF_GRADIENTS) and not any(operand is p for p in self.params.values())


def step(model_path, inputs, weights, rounded=exact):
    with open(model_path) as f:
        model = json.load(f)
    return Step(model, inputs, weights, rounded)
