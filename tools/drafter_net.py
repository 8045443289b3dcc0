"""The DFlash2 drafter as a torch module, of any size: what tools/train_drafter.py and tools/fledgling
train, and what they write (docs/DRAFTER.md has the formulas)."""
import dataclasses
import json
import os
import struct

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of a drafter; those in the first line are its target's."""
    hidden: int
    vocabulary: int
    target_layers: int
    mask_token: int
    taps: tuple            # target layers whose outputs it reads
    layers: int = 3
    mlp: int = 512
    heads: int = 4
    kv_heads: int = 2
    head: int = 64
    window: int = 256      # context rows that a row sees
    block: int = 16        # rows: the known token and masks
    conv_taps: int = 2
    conv_group: int = 16
    rank: int = 32
    candidates: int = 16
    theta: float = 1e7
    eps: float = 1e-6

    def config(self):
        """config.json of the checkpoint."""
        return {
            "architectures": ["DFlash2DraftModel"], "model_type": "qwen3", "dtype": "bfloat16",
            "hidden_size": self.hidden, "intermediate_size": self.mlp,
            "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads, "head_dim": self.head,
            "vocab_size": self.vocabulary, "rms_norm_eps": self.eps, "rope_theta": self.theta,
            "rope_scaling": None, "max_position_embeddings": 262144, "hidden_act": "silu",
            "attention_bias": False, "tie_word_embeddings": False,
            "layer_types": ["sliding_attention"] * self.layers, "sliding_window": self.window,
            "use_sliding_window": True, "max_window_layers": self.layers, "is_causal": False,
            "num_target_layers": self.target_layers,
            "dflash_config": {
                "block_size": self.block, "mask_token_id": self.mask_token,
                "target_layer_ids": list(self.taps), "conv_kernel_size": self.conv_taps,
                "conv_group_size": self.conv_group, "selector_rank": self.rank,
                "selector_top_k": self.candidates}}


class Norm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x):
        y = x.float() if x.dtype != torch.float64 else x
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight).to(x.dtype)


class BlockConv(nn.Module):
    """Dynamic convolution along the block; starts as the identity."""

    def __init__(self, s):
        super().__init__()
        self.s = s
        base = torch.zeros(2, s.conv_taps, s.hidden)
        base[:, 0] = 1
        self.base_kernel = nn.Parameter(base)                  # [side][tap][channel]
        self.kernel_projection = nn.Linear(s.hidden, 2 * s.conv_taps * (s.hidden // s.conv_group), bias=False)
        nn.init.zeros_(self.kernel_projection.weight)

    def coefficients(self, h):                                 # (..., rows, h) -> (..., rows, side, tap, h)
        s = self.s
        d = self.kernel_projection(h).view(*h.shape[:-1], 2, s.conv_taps, s.hidden // s.conv_group)
        return self.base_kernel + d.repeat_interleave(s.conv_group, -1)

    @staticmethod
    def mix(coefficients, y):                                  # (..., rows, tap, h), (..., rows, h)
        out = coefficients[..., 0, :] * y
        for tap in range(1, coefficients.shape[-2]):
            out = out + coefficients[..., tap, :] * F.pad(y, (0, 0, tap, 0))[..., :-tap, :]
        return out


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.q_proj = nn.Linear(s.hidden, s.heads * s.head, bias=False)
        self.k_proj = nn.Linear(s.hidden, s.kv_heads * s.head, bias=False)
        self.v_proj = nn.Linear(s.hidden, s.kv_heads * s.head, bias=False)
        self.o_proj = nn.Linear(s.heads * s.head, s.hidden, bias=False)
        self.q_norm, self.k_norm = Norm(s.head, s.eps), Norm(s.head, s.eps)

    def rope(self, x, position):                               # (..., heads, d), (...)
        d = self.s.head
        exact = torch.float64 if x.dtype == torch.float64 else torch.float32
        f = self.s.theta ** (-torch.arange(0, d, 2, device=x.device, dtype=exact) / d)
        angle = position.to(exact)[..., None, None] * f
        c, s, (a, b) = angle.cos(), angle.sin(), x.to(exact).chunk(2, -1)
        return torch.cat([a * c - b * s, b * c + a * s], -1).to(x.dtype)

    def kv(self, x, position):
        n = self.s.kv_heads, self.s.head
        k = self.rope(self.k_norm(self.k_proj(x).unflatten(-1, n)), position)
        v = self.v_proj(x).unflatten(-1, n)
        return (y.repeat_interleave(self.s.heads // self.s.kv_heads, -2) for y in (k, v))

    def forward(self, h, position, c, context_position, seen):
        """h (s, a, b, H) rows of a blocks at position (s, a, b); c (s, t, H) context; seen (s, a, b, t)."""
        q = self.rope(self.q_norm(self.q_proj(h).unflatten(-1, (self.s.heads, self.s.head))), position)
        bk, bv = self.kv(h, position)
        ck, cv = self.kv(c, context_position)
        of_context = torch.einsum("sabnd,stnd->snabt", q, ck).masked_fill(~seen[:, None], float("-inf"))
        of_block = torch.einsum("sabnd,sacnd->snabc", q, bk)
        scores = torch.cat([of_context, of_block], -1) * self.s.head ** -.5
        p = (scores if scores.dtype == torch.float64 else scores.float()).softmax(-1).to(q.dtype)
        t = ck.shape[1]
        y = torch.einsum("snabt,stnd->sabnd", p[..., :t], cv)
        return self.o_proj((y + torch.einsum("snabc,sacnd->sabnd", p[..., t:], bv)).flatten(-2))


class Mlp(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.gate_proj = nn.Linear(s.hidden, s.mlp, bias=False)
        self.up_proj = nn.Linear(s.hidden, s.mlp, bias=False)
        self.down_proj = nn.Linear(s.mlp, s.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(s.hidden, s.eps), Norm(s.hidden, s.eps)
        self.self_attn, self.mlp = Attention(s), Mlp(s)
        self.attention_conv, self.mlp_conv = BlockConv(s), BlockConv(s)

    def forward(self, x, *context):
        for norm, conv, inner in (
                (self.input_layernorm, self.attention_conv, lambda h: self.self_attn(h, *context)),
                (self.post_attention_layernorm, self.mlp_conv, self.mlp)):
            h = norm(x)
            k = conv.coefficients(h)
            x = x + conv.mix(k[..., 1, :, :], inner(conv.mix(k[..., 0, :, :], h)))
        return x


class Selector(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.hidden_projection = nn.Linear(s.hidden, s.rank, bias=False)
        self.predecessor_codebook = nn.Parameter(torch.randn(s.vocabulary, s.rank) * .02)
        self.successor_codebook = nn.Parameter(torch.zeros(s.vocabulary, s.rank))

    def forward(self, y, previous, top):
        """Pair scores of the candidates top (..., k) behind the tokens previous (...); rows y (..., H)."""
        a = self.predecessor_codebook[previous] * self.hidden_projection(y)
        return torch.einsum("...r,...kr->...k", a, self.successor_codebook[top])


class Drafter(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        self.fc = nn.Linear(len(s.taps) * s.hidden, s.hidden, bias=False)
        self.hidden_norm, self.norm = Norm(s.hidden, s.eps), Norm(s.hidden, s.eps)
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.candidate_selector = Selector(s)
        for name, p in self.named_parameters():
            if p.ndim == 2 and "codebook" not in name and "kernel_projection" not in name:
                nn.init.normal_(p, std=.02)

    def context(self, taps):
        return self.hidden_norm(self.fc(taps))

    def forward(self, c, x, anchor):
        """c (s, t, H) features of positions 0..t-1, x (s, a, b, H) embedded blocks behind anchor (s, a)."""
        t, b = c.shape[1], x.shape[2]
        context_position = torch.arange(t, device=c.device).expand(c.shape[0], t)
        position = anchor[..., None] + torch.arange(b, device=c.device)
        at = context_position[:, None, None]
        seen = (at < anchor[..., None, None]) & (at >= position[..., None] - (self.s.window - 1))
        for layer in self.layers:
            x = layer(x, position, c, context_position, seen)
        return self.norm(x)


def load_drafter(folder):
    """The drafter of a checkpoint that write_drafter has written."""
    config = json.load(open(os.path.join(folder, "config.json")))
    part = config["dflash_config"]
    d = Drafter(Shape(
        hidden=config["hidden_size"], vocabulary=config["vocab_size"],
        target_layers=config["num_target_layers"], mask_token=part["mask_token_id"],
        taps=tuple(part["target_layer_ids"]), layers=config["num_hidden_layers"],
        mlp=config["intermediate_size"], heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"], head=config["head_dim"],
        window=config["sliding_window"], block=part["block_size"],
        conv_taps=part["conv_kernel_size"], conv_group=part["conv_group_size"],
        rank=part["selector_rank"], candidates=part["selector_top_k"],
        theta=config["rope_theta"], eps=config["rms_norm_eps"]))
    raw = open(os.path.join(folder, "model.safetensors"), "rb").read()
    start = 8 + struct.unpack("<Q", raw[:8])[0]
    tensors = {}
    for name, entry in json.loads(raw[8:start]).items():
        if name == "__metadata__":
            continue
        begin, end = (start + offset for offset in entry["data_offsets"])
        words = np.frombuffer(raw[begin:end], np.uint16).astype(np.uint32) << 16
        tensors[name] = torch.from_numpy(words.view(np.float32).reshape(entry["shape"]).copy())
    d.load_state_dict(tensors)
    return d


def write_drafter(d, folder):
    """config.json and model.safetensors, bf16."""
    os.makedirs(folder, exist_ok=True)
    head, parts, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, p in d.named_parameters():
        bits = p.detach().float().cpu().contiguous().to(torch.bfloat16).view(torch.int16).numpy().tobytes()
        head[name] = {"dtype": "BF16", "shape": list(p.shape), "data_offsets": [at, at + len(bits)]}
        parts.append(bits)
        at += len(bits)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))
    json.dump(d.s.config(), open(os.path.join(folder, "config.json"), "w"), indent=2)


def candidates(y, head, k):
    """Unary logits of rows y and their top k: (logits, values, ids)."""
    u = y @ head.T
    u = u if u.dtype == torch.float64 else u.float()
    return u, *u.topk(k, -1)


@torch.no_grad()
def draft(d, c, embed, head, anchor_ids, anchor, rows):
    """Greedy drafts of every block: (with selector, without), each (s, a, rows-1)."""
    ids = torch.full((*anchor.shape, rows), d.s.mask_token, device=c.device)
    ids[..., 0] = anchor_ids
    y = d(c, embed[ids], anchor)[..., 1:, :]
    _, value, top = candidates(y, head, d.s.candidates)
    previous, out = anchor_ids, []
    for j in range(rows - 1):
        score = value[..., j, :] + d.candidate_selector(y[..., j, :], previous, top[..., j, :])
        previous = top[..., j, :].gather(-1, score.argmax(-1, keepdim=True))[..., 0]
        out.append(previous)
    return torch.stack(out, -1), top[..., 0]


def walk(seq, start, drafts):
    """Accepted drafts of every round when seq[start + 1:] is decoded with drafts[p - start] at every anchor p."""
    p, last, accepted = start, len(seq) - 1, []
    while p < last:
        a = 0
        while a < len(drafts[p - start]) and p + a < last and drafts[p - start][a] == seq[p + a + 1]:
            a += 1
        p += a + 1
        accepted.append(a)
    return accepted
