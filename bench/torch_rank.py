#!/usr/bin/env python3
"""One rank of a PyTorch system, started by peers.py: transformers' Llama with random weights on random tokens, bf16 compute and
reduction, fp32 master weights, fused AdamW. Rank 0 prints one JSON object a line behind an '@'."""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

from spans import exposed, length


def say(event, **fields):
    if int(os.environ["RANK"]) == 0:
        print("@" + json.dumps({"event": event, **fields}), flush=True)


def make_model(shape, seq):
    """On the GPU, in fp32, initialised by transformers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=shape["vocab"],
        hidden_size=shape["hidden"],
        intermediate_size=shape["ffn"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        num_key_value_heads=shape["kv_heads"],
        head_dim=shape["head_dim"],
        max_position_embeddings=max(seq, 4096),
        tie_word_embeddings=shape["tied"],
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        use_cache=False,
        attn_implementation="sdpa",
    )
    with torch.device("cuda"):
        return LlamaForCausalLM(config).float().train()


def token_loss(logits, labels):
    return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


class WithLoss(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, labels):
        return token_loss(self.model(input_ids=tokens, use_cache=False).logits, labels)


def recompute(model):
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def fsdp2(args, shape):
    """A step: FSDP2 a layer, and the root with embedding, last norm and head. Compiled: each layer and the loss."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = make_model(shape, args.seq)
    if args.recompute == "full":
        recompute(model)
    loss_of = token_loss
    if args.system == "fsdp2-compiled":
        for layer in model.model.layers:
            layer.forward = torch.compile(layer.forward, dynamic=False)
        model.model.norm.forward = torch.compile(model.model.norm.forward, dynamic=False)
        loss_of = torch.compile(token_loss, dynamic=False)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)

    def step(tokens, labels):
        loss = loss_of(model(input_ids=tokens, use_cache=False).logits, labels)
        loss.backward()
        if args.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def deepspeed(args, shape):
    """ZeRO-3 with its default configuration; DeepCompile with its default schedule."""
    # Its extensions are built for this device: it does not read lists that name a generation's own variant (9.0a).
    os.environ["TORCH_CUDA_ARCH_LIST"] = "{}.{}".format(*torch.cuda.get_device_capability())
    import deepspeed as ds

    ds.init_distributed("nccl")
    model = make_model(shape, args.seq)
    if args.recompute == "full":
        recompute(model)
    module = WithLoss(model)
    config = {
        "train_micro_batch_size_per_gpu": args.batch,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3},
        "gradient_clipping": args.clip,
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 1000000,
        "compile": {"deepcompile": args.system == "deepcompile"},
    }
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    engine = ds.initialize(model=module, optimizer=optimizer, config=config)[0]
    if args.system == "deepcompile":
        engine.compile()

    def step(tokens, labels):
        loss = engine(tokens, labels)
        engine.backward(loss)
        engine.step()
        return loss.detach()

    return step


def batches(args, shape, device):
    """Four batches of random tokens, in turn; labels are the next tokens."""
    generator = torch.Generator(device=device).manual_seed(1 + int(os.environ["RANK"]))
    sets = [
        torch.randint(0, shape["vocab"], (args.batch, args.seq + 1), device=device, generator=generator)
        for _ in range(4)
    ]
    i = 0
    while True:
        tokens = sets[i % 4]
        yield tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        i += 1


def measure(args, step, feed):
    """Warm-up steps one by one, with their end times; then the measured ones without waiting between them."""
    start = float(os.environ["BENCH_START"])
    warm = []
    for n in range(args.warmup):
        before = time.time()
        step(*next(feed))
        torch.cuda.synchronize()
        warm.append((1e3 * (time.time() - before), time.time() - start))
        say("step", n=n + 1, ms=warm[-1][0])
    torch.cuda.reset_peak_memory_stats()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(args.steps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        loss = step(*next(feed))
        mark.record()
    torch.cuda.synchronize()
    times = [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
    ms = statistics.median(times)
    quick = [end for took, end in warm if took <= 1.1 * ms]
    say(
        "done",
        ms=ms,
        mean_ms=statistics.mean(times),
        loss=float(loss),
        allocated=torch.cuda.max_memory_allocated(),
        reserved=torch.cuda.max_memory_reserved(),
        first_full_speed_s=quick[0] if quick else None,
    )


def profile(step, feed, steps=3):
    """Kernels and copies of some more steps, by PyTorch's profiler: what is exposed, and how long nothing runs, ms a step."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(steps):
            step(*next(feed))
        end.record()
        torch.cuda.synchronize()
    with tempfile.NamedTemporaryFile(suffix=".json") as trace:
        profiler.export_chrome_trace(trace.name)
        with open(trace.name) as text:
            events = json.load(text)["traceEvents"]
    on_device = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    spans = [("nccl" in e["name"].lower(), e["ts"], e["ts"] + e["dur"]) for e in on_device]
    busy = length([(b, e) for _, b, e in spans])
    say("profile", exposed_ms=exposed(spans) / 1e3 / steps, idle_ms=max(begin.elapsed_time(end) - busy / 1e3, 0) / steps)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--system", required=True, choices=["fsdp2", "fsdp2-compiled", "deepspeed", "deepcompile"])
    parser.add_argument("--shape", required=True, type=json.loads)
    parser.add_argument("--batch", required=True, type=int)
    parser.add_argument("--seq", required=True, type=int)
    parser.add_argument("--steps", required=True, type=int)
    parser.add_argument("--warmup", required=True, type=int)
    parser.add_argument("--clip", default=0.0, type=float)
    parser.add_argument("--recompute", default="none")
    args = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    if args.system.startswith("fsdp2"):
        dist.init_process_group("nccl", device_id=device)
    step = (fsdp2 if args.system.startswith("fsdp2") else deepspeed)(args, args.shape)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    say("training", torch=torch.__version__)
    feed = batches(args, args.shape, device)
    measure(args, step, feed)
    profile(step, feed)
    sys.stdout.flush()
    # Leaving without tearing down: a destructor that hangs would cost the run its time.
    os._exit(0)


if __name__ == "__main__":
    main()
