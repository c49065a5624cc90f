#!/usr/bin/env python3
"""Loss over a run on real text: a small Llama by Foregather (on two GPUs, or --ranks) and by PyTorch (fp32 master weights and AdamW), from the same
weights, on the same rows, both in bf16, fp16 and fp32.

    accuracy.py prepare DIR [--foregather F]   compiles the programs (needs nvcc)
    accuracy.py run DIR                        weights and tokens (this project's own text as bytes), two runs of each system, one table: DIR/accuracy.txt

`run` needs the GPUs, numpy, torch and transformers. How far two runs of one system are apart is what their difference is held against."""
import argparse
import json
import math
import os
import struct
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIMS = dict(vocab=256, hidden=768, heads=12, kv_heads=4, head_dim=64, layers=8, ffn=2048, seq=512)
ROWS, STEPS, LR = 8, 200, 1e-3
SCALE = 1024.0  # of fp16's loss, in both systems: far from overflow


def text():
    files = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("passes/*.c"), *ROOT.glob("runtime/**/*.c")])
    return b"".join(path.read_bytes() for path in files)


def shapes():
    d = DIMS
    q, kv = d["heads"] * d["head_dim"], d["kv_heads"] * d["head_dim"]
    rows = {"model.embed_tokens.weight": (d["vocab"], d["hidden"]), "model.norm.weight": (d["hidden"],)}
    for i in range(d["layers"]):
        at = f"model.layers.{i}."
        rows[at + "input_layernorm.weight"] = rows[at + "post_attention_layernorm.weight"] = (d["hidden"],)
        rows[at + "self_attn.q_proj.weight"] = (q, d["hidden"])
        rows[at + "self_attn.k_proj.weight"] = rows[at + "self_attn.v_proj.weight"] = (kv, d["hidden"])
        rows[at + "self_attn.o_proj.weight"] = (d["hidden"], q)
        rows[at + "mlp.gate_proj.weight"] = rows[at + "mlp.up_proj.weight"] = (d["ffn"], d["hidden"])
        rows[at + "mlp.down_proj.weight"] = (d["hidden"], d["ffn"])
    return rows


def write_weights(path):
    """Normal, 0.02; norms 1. safetensors, f32."""
    import numpy

    source = numpy.random.default_rng(7)
    tensors = {n: numpy.ones(s, "f4") if len(s) == 1 else (0.02 * source.standard_normal(s)).astype("f4") for n, s in shapes().items()}
    head, at = {}, 0
    for name, x in tensors.items():
        head[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    blob = json.dumps(head).encode()
    blob += b" " * (-len(blob) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(blob)) + blob)
        for x in tensors.values():
            out.write(x.tobytes())


def prepare(args):
    args.folder.mkdir(parents=True, exist_ok=True)
    model = json.loads((ROOT / "examples" / "llama-3.2-1b.json").read_text())
    model["name"] = "small-llama"
    model["dims"].update(DIMS, batch=ROWS // args.ranks)
    (args.folder / "model.json").write_text(json.dumps(model, indent=1))
    for name, flags in {"compiled": [], "zero3": ["--schedule", "zero3"], "fp16": ["--precision", "fp16"], "fp32": ["--precision", "fp32"]}.items():
        subprocess.run([args.foregather, "compile", str(args.folder / "model.json"), "--target", "cuda", "--machine", "2xH200", "--ranks", str(args.ranks), "--precision", "bf16",
                        *flags, "--decay", "all", "-o", str(args.folder / name)], check=True, stdout=subprocess.DEVNULL)  # fmt: skip
        subprocess.run(["strip", str(args.folder / name)], check=True)


def ours(args, name, tag, *options):
    log = args.folder / f"{tag}.jsonl"
    log.unlink(missing_ok=True)
    command = [str((args.folder / name).resolve()), "--data", str(args.folder / "text.bin"), "--weights", str(args.folder / "weights.safetensors"),
               "--steps", str(STEPS), "--lr", str(LR), "--weight-decay", "0.1", "--local-ranks", str(args.ranks), "--log", str(log),
               "--print-every", "1000", *options]  # fmt: skip
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=100)
    rows = [json.loads(line) for line in open(log)]
    return [row["loss"] for row in rows if "loss" in row and "step" in row][:STEPS]


def torch_losses(folder, precision):
    """One process: narrow weights for compute, made from fp32 ones that AdamW updates."""
    import torch
    import torch.nn.functional as F
    from safetensors.torch import load_file
    from transformers import LlamaConfig, LlamaForCausalLM

    d = DIMS
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192}  # fmt: skip
    config = LlamaConfig(vocab_size=d["vocab"], hidden_size=d["hidden"], intermediate_size=d["ffn"], num_hidden_layers=d["layers"],
                         num_attention_heads=d["heads"], num_key_value_heads=d["kv_heads"], head_dim=d["head_dim"], rms_norm_eps=1e-5,
                         max_position_embeddings=131072, tie_word_embeddings=True, rope_parameters=rope, use_cache=False,
                         attn_implementation="sdpa")  # fmt: skip
    model = LlamaForCausalLM(config)
    model.load_state_dict(load_file(folder / "weights.safetensors"), strict=False)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[precision]
    scale = SCALE if precision == "fp16" else 1.0
    model = model.cuda().to(dtype).train()
    narrow = list(model.parameters())
    fresh = load_file(folder / "weights.safetensors")
    masters = [torch.nn.Parameter(fresh[name].cuda().float()) for name, _ in model.named_parameters()]
    optimizer = torch.optim.AdamW(masters, lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
    data = torch.tensor(list(text()), device="cuda")
    losses = []
    for step in range(STEPS):
        at = step * ROWS * d["seq"]
        rows = [data[at + r * d["seq"] : at + (r + 1) * d["seq"] + 1] for r in range(ROWS)]
        tokens = torch.stack(rows)
        loss = F.cross_entropy(model(input_ids=tokens[:, :-1], use_cache=False).logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        (loss * scale).backward()
        for master, weight in zip(masters, narrow):
            master.grad, weight.grad = weight.grad.float() / scale, None
        optimizer.step()
        with torch.no_grad():
            for master, weight in zip(masters, narrow):
                weight.copy_(master)
        losses.append(float(loss))
    return losses


def apart(a, b):
    """Of the last 100 steps: root of the mean square, the largest, and the mean difference."""
    d = [x - y for x, y in zip(a[-100:], b[-100:])]
    return "rms %.4f, most %.4f, mean %+.4f" % (math.sqrt(sum(x * x for x in d) / len(d)), max(map(abs, d)), sum(d) / len(d))


def run(args):
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    write_weights(args.folder / "weights.safetensors")
    data = text()
    with open(args.folder / "text.bin", "wb") as out:  # llm.c's format, 16 bits a token
        out.write(struct.pack("<256i", 20240520, 1, len(data), *([0] * 253)))
        out.write(struct.pack(f"<{len(data)}H", *data))

    def peer(precision):
        child = [sys.executable, __file__, "torch", str(args.folder), "--precision", precision]
        return json.loads(subprocess.run(child, check=True, capture_output=True, text=True, timeout=120).stdout.strip().split("\n")[-1])

    peers = [peer("bf16"), peer("bf16")]
    a, b = (ours(args, "compiled", f"compiled-{i}") for i in (1, 2))
    z, half, whole = ours(args, "zero3", "zero3"), ours(args, "fp16", "fp16", "--loss-scale", str(int(SCALE))), ours(args, "fp32", "fp32")
    peer_half, peer_whole = peer("fp16"), peer("fp32")
    one, two = (ours(args, "compiled", f"repeat-{i}", "--deterministic") for i in (1, 2))
    shown = [peers[0], a, peer_half, half, peer_whole, whole]
    row = "{:>4}" + "{:>11}" * 6
    lines = [row.format("", "bf16", "", "fp16", "", "fp32", ""), row.format("step", *("PyTorch", "Foregather") * 3)]
    lines += [row.format(s, *(f"{x[s - 1]:.4f}" for x in shown)) for s in (1, 10, 20, 50, 100, 150, 200)]
    lines += [f"two runs of PyTorch: {apart(peers[0], peers[1])}", f"two runs of Foregather: {apart(a, b)}", f"Foregather and PyTorch: {apart(a, peers[0])}",
              f"ZeRO-3's schedule and PyTorch: {apart(z, peers[0])}", f"fp16, both: {apart(half, peer_half)}", f"fp32, both: {apart(whole, peer_whole)}",
              f"PyTorch's fp16 and its bf16: {apart(peer_half, peers[0])}", f"PyTorch's fp16 and its fp32: {apart(peer_half, peer_whole)}",
              f"two runs with --deterministic: {'the same numbers' if one == two else apart(one, two)}"]  # fmt: skip
    (args.folder / "accuracy.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["prepare", "run", "torch"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--foregather", default="foregather")
    parser.add_argument("--ranks", type=int, choices=[1, 2, 4], default=2, help="of Foregather's programs: GPUs")
    parser.add_argument("--precision", choices=["bf16", "fp16", "fp32"], default="bf16", help="of the action torch")
    args = parser.parse_args()
    if args.action == "torch":
        print(json.dumps(torch_losses(args.folder, args.precision)))
    else:
        {"prepare": prepare, "run": run}[args.action](args)


if __name__ == "__main__":
    main()
