"""Turns one oracle folder (a Hugging Face model's tensors and figures) into a folder of tests/data.

    import_oracle.py ORACLE OUT

The inputs get the names that model.json gives them (tokens, labels), and the labels are shifted once: labels[b, t]
becomes the target at t, -100 at the last place of a row. Weights and gradients are copied; of the figures those that
the suite compares. A training curve keeps its token file and its logged steps.
"""
import json
import os
import shutil
import struct
import sys


def read_safetensors(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    base = 8 + size
    return {k: (v["dtype"], v["shape"], data[base + v["data_offsets"][0] : base + v["data_offsets"][1]]) for k, v in header.items()}


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)


def shifted(data, rows, cols):
    labels = struct.unpack(f"<{rows * cols}q", data)
    out = []
    for r in range(rows):
        out += [*labels[r * cols + 1 : (r + 1) * cols], -100]
    return struct.pack(f"<{rows * cols}i", *out)


def main():
    oracle, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    expected = json.load(open(os.path.join(oracle, "expected.json")))
    if "steps_log" in expected:
        shutil.copy(os.path.join(oracle, "tokens.bin"), os.path.join(out, "tokens.bin"))
        shutil.copy(os.path.join(oracle, "model.safetensors"), os.path.join(out, "weights.safetensors"))
    else:
        for name in ("weights", "grads"):
            shutil.copy(os.path.join(oracle, name + ".safetensors"), os.path.join(out, name + ".safetensors"))
        inputs = read_safetensors(os.path.join(oracle, "inputs.safetensors"))
        _, (rows, cols), tokens = inputs["input_ids"]
        tokens = struct.pack(f"<{rows * cols}i", *struct.unpack(f"<{rows * cols}q", tokens))
        write_safetensors(
            os.path.join(out, "inputs.safetensors"),
            {"labels": ("I32", [rows, cols], shifted(inputs["labels"][2], rows, cols)), "tokens": ("I32", [rows, cols], tokens)},
        )
    with open(os.path.join(out, "expected.json"), "w") as f:
        json.dump(expected, f, indent=1)
        f.write("\n")


main()
