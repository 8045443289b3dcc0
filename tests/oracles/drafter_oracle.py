"""The drafter against a second writing of its formulas in numpy, on random drafters of both versions.

    python tests/oracles/drafter_oracle.py build/release/drafter_tool

The golden data knows one drafter; here are windows and full layers, causal blocks, many taps, other
block sizes, caps, and drawn drafts. All in float64; differences must stay below 1e-5 of the largest
value, drafted tokens must be equal.
"""
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TARGET = os.path.join(ROOT, "models", "fledgling")
H, V, N = 256, 3072, 8


# ---- files -------------------------------------------------------------------------------------

def read_safetensors(path):
    raw = open(path, "rb").read()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    out = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        data = raw[8 + size + begin:8 + size + end]
        if entry["dtype"] == "BF16":
            bits = np.frombuffer(data, "<u2").astype(np.uint32) << 16
            values = bits.view(np.float32)
        else:
            values = np.frombuffer(data, {"F32": "<f4", "U32": "<u4", "I32": "<i4"}[entry["dtype"]])
        out[name] = values.reshape(entry["shape"])
    return out


def as_bf16(x):
    """The values rounded to bf16, and their bits."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    bits = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint32)
    return (bits << 16).view(np.float32), bits.astype("<u2")


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, x in tensors.items():
        raw = as_bf16(x)[1].tobytes()
        header[name] = {"dtype": "BF16", "shape": list(x.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    open(path, "wb").write(len(text).to_bytes(8, "little") + text + data)


def target_matrix(tensors, module):
    """A 4- or 8-bit matrix of the MLX layout, as numbers."""
    words, scales = tensors[module + ".weight"], tensors[module + ".scales"].astype(np.float64)
    biases = tensors[module + ".biases"].astype(np.float64)
    bits = 32 * words.shape[1] // H
    codes = words[:, :, None] >> (np.arange(32 // bits, dtype=np.uint32) * bits) & (2 ** bits - 1)
    codes = codes.reshape(len(words), H).astype(np.float64)
    group = H // scales.shape[1]
    return codes * scales.repeat(group, 1) + biases.repeat(group, 1)


# ---- the formulas ------------------------------------------------------------------------------

def norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rope(x, positions, theta):
    """x [rows, heads, d], rotated in pairs half a head apart."""
    half = x.shape[-1] // 2
    angle = positions[:, None, None] * theta ** (-2.0 * np.arange(half) / x.shape[-1])
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle),
                           b * np.cos(angle) + a * np.sin(angle)], -1)


def convolve(x, base, dynamic):
    """base [taps, h], dynamic [rows, taps, groups]."""
    out = np.zeros_like(x)
    for row in range(len(x)):
        for tap in range(min(len(base), row + 1)):
            spread = dynamic[row, tap].repeat(x.shape[1] // dynamic.shape[2])
            out[row] += (base[tap] + spread) * x[row - tap]
    return out


def gumbel(seed, position, token):
    mask = 2 ** 64 - 1

    def mix(x):
        x ^= x >> 30
        x = x * 0xBF58476D1CE4E5B9 & mask
        x ^= x >> 27
        x = x * 0x94D049BB133111EB & mask
        return x ^ x >> 31
    x = mix(mix(seed + 0x9E3779B97F4A7C15 & mask) ^ (position * 0xD1B54A32D192ED03 & mask))
    x = mix(x ^ token)
    return -math.log(-math.log((x >> 11) * 2.0 ** -53 + 2.0 ** -54))


class Drafter:
    def __init__(self, config, weights, embedding, head):
        self.c, self.w, self.embedding, self.head = config, weights, embedding, head
        self.d, self.eps, self.theta = config["head_dim"], config["rms_norm_eps"], config["rope_theta"]
        self.is_second = config["architectures"] == ["DFlash2DraftModel"]

    def heads(self, x, matrix):
        return (x @ self.w[matrix].T).reshape(len(x), -1, self.d)

    def keys(self, layer, x, positions):
        k = norm(self.heads(x, layer + "self_attn.k_proj.weight"),
                 self.w[layer + "self_attn.k_norm.weight"], self.eps)
        return rope(k, positions, self.theta), self.heads(x, layer + "self_attn.v_proj.weight")

    def context(self, taps):
        return norm(taps @ self.w["fc.weight"].T, self.w["hidden_norm.weight"], self.eps)

    def attention(self, i, x, context, begin):
        """Rows of the block at positions len(context)…, context rows from `begin` on."""
        layer, rows, p = f"layers.{i}.", len(x), len(context)
        positions = p + np.arange(rows)
        q = norm(self.heads(x, layer + "self_attn.q_proj.weight"),
                 self.w[layer + "self_attn.q_norm.weight"], self.eps)
        q = rope(q, positions, self.theta)
        ck, cv = self.keys(layer, context, np.arange(p))
        bk, bv = self.keys(layer, x, positions)
        slides = self.c.get("layer_types", ["full_attention"] * 99)[i] == "sliding_attention"
        is_causal = slides and not self.is_second
        out = np.zeros_like(q)
        for row in range(rows):
            first = max(begin, p + row - (self.c["sliding_window"] - 1)) if slides else begin
            last = row + 1 if is_causal else rows
            k = np.concatenate([ck[first:p] if first < p else ck[:0], bk[:last]])
            v = np.concatenate([cv[first:p] if first < p else cv[:0], bv[:last]])
            for head in range(q.shape[1]):
                g = head // (q.shape[1] // k.shape[1])
                score = k[:, g] @ q[row, head] / math.sqrt(self.d)
                weight = np.exp(score - score.max())
                out[row, head] = weight @ v[:, g] / weight.sum()
        return out.reshape(rows, -1) @ self.w[layer + "self_attn.o_proj.weight"].T

    def mlp(self, i, x):
        layer = f"layers.{i}.mlp."
        gate, up = x @ self.w[layer + "gate_proj.weight"].T, x @ self.w[layer + "up_proj.weight"].T
        return (gate / (1 + np.exp(-gate)) * up) @ self.w[layer + "down_proj.weight"].T

    def around(self, conv, x, sublayer):
        if not self.is_second:
            return sublayer(x)
        base = self.w[conv + ".base_kernel"]
        dynamic = (x @ self.w[conv + ".kernel_projection.weight"].T).reshape(
            len(x), 2, base.shape[1], -1)
        return convolve(sublayer(convolve(x, base[0], dynamic[:, 0])), base[1], dynamic[:, 1])

    def hidden(self, context, anchor, rows, begin):
        mask = self.c["dflash_config"]["mask_token_id"]
        x = self.embedding[[anchor] + [mask] * (rows - 1)]
        for i in range(self.c["num_hidden_layers"]):
            layer = f"layers.{i}."
            h = norm(x, self.w[layer + "input_layernorm.weight"], self.eps)
            x = x + self.around(layer + "attention_conv", h,
                                lambda y: self.attention(i, y, context, begin))
            h = norm(x, self.w[layer + "post_attention_layernorm.weight"], self.eps)
            x = x + self.around(layer + "mlp_conv", h, lambda y: self.mlp(i, y))
        return norm(x, self.w["norm.weight"], self.eps)[1:]

    def draft(self, y, anchor, position, temperature, seed):
        part = self.c["dflash_config"]
        u = y @ self.head.T * part.get("output_multiplier", 1)
        cap = part.get("final_logit_softcapping") or 0
        k = part.get("selector_top_k", 16)
        previous, all_ids, all_scores, tokens = anchor, [], [], []
        for j, row in enumerate(u):
            ids = np.lexsort((np.arange(V), -row))[:k]
            score = cap * np.tanh(row[ids] / cap) if cap else row[ids]
            if self.is_second:
                h = self.w["candidate_selector.hidden_projection.weight"] @ y[j]
                score = score + self.w["candidate_selector.successor_codebook"][ids] @ (
                    self.w["candidate_selector.predecessor_codebook"][previous] * h)
            value = score
            if temperature > 0:
                value = [s / temperature + gumbel(seed, position + j, int(t))
                         for s, t in zip(score, ids)]
            previous = int(ids[int(np.argmax(value))])
            all_ids.append(ids)
            all_scores.append(score)
            tokens.append(previous)
        return np.array(all_ids), np.array(all_scores), tokens


# ---- cases -------------------------------------------------------------------------------------

def config_of(version, layers, taps, **changes):
    config = {"architectures": ["DFlash2DraftModel" if version == 2 else "DFlashDraftModel"],
              "hidden_size": H, "intermediate_size": 192, "num_hidden_layers": len(layers),
              "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": V,
              "rms_norm_eps": 1e-5, "rope_theta": 5e5, "num_target_layers": N,
              "layer_types": [t + "_attention" for t in layers], "sliding_window": 24,
              "dflash_config": {"block_size": 16, "mask_token_id": 3070, "target_layer_ids": taps}}
    if version == 2:
        config["is_causal"] = False
        config["dflash_config"].update(conv_kernel_size=2, conv_group_size=16, selector_rank=8,
                                       selector_top_k=16)
    config["dflash_config"].update(changes)
    return config


def weights_of(config, rng):
    part, d = config["dflash_config"], config["head_dim"]
    taps = part["target_layer_ids"]
    width, f = config["num_attention_heads"] * d, config["intermediate_size"]
    kv = config["num_key_value_heads"] * d

    def matrix(*shape):
        return rng.normal(size=shape) / math.sqrt(shape[-1])

    def factors(n):
        return 1 + 0.2 * rng.normal(size=n)
    w = {"fc.weight": matrix(H, len(taps) * H), "hidden_norm.weight": factors(H),
         "norm.weight": factors(H)}
    for i in range(config["num_hidden_layers"]):
        p = f"layers.{i}."
        w.update({p + "input_layernorm.weight": factors(H),
                  p + "post_attention_layernorm.weight": factors(H),
                  p + "self_attn.q_proj.weight": 2 * matrix(width, H),
                  p + "self_attn.k_proj.weight": 2 * matrix(kv, H),
                  p + "self_attn.v_proj.weight": matrix(kv, H),
                  p + "self_attn.o_proj.weight": matrix(H, width),
                  p + "self_attn.q_norm.weight": factors(d), p + "self_attn.k_norm.weight": factors(d),
                  p + "mlp.gate_proj.weight": matrix(f, H), p + "mlp.up_proj.weight": matrix(f, H),
                  p + "mlp.down_proj.weight": matrix(H, f)})
        if "conv_kernel_size" not in part:
            continue
        k, groups = part["conv_kernel_size"], H // part["conv_group_size"]
        for conv in ("attention_conv", "mlp_conv"):
            w[p + conv + ".base_kernel"] = rng.normal(size=(2, k, H))
            w[p + conv + ".kernel_projection.weight"] = 0.5 * matrix(2 * k * groups, H)
    if "selector_rank" in part:
        rank = part["selector_rank"]
        w["candidate_selector.hidden_projection.weight"] = matrix(rank, H)
        w["candidate_selector.predecessor_codebook"] = rng.normal(size=(V, rank))
        w["candidate_selector.successor_codebook"] = rng.normal(size=(V, rank))
    return {name: as_bf16(x)[0].astype(np.float32) for name, x in w.items()}


CASES = [  # version, layers, taps, changes of dflash_config; context, its begin, rows, temperature
    (2, ["sliding"] * 2, [1, 3, 4, 6], {}, 70, 0, 16, 0),
    (2, ["full", "sliding"], [0, 1, 2, 3, 4, 5, 6, 7], {"conv_kernel_size": 3}, 40, 11, 7, 1.0),
    (2, ["full"], [5], {"conv_group_size": 64, "selector_top_k": 5, "block_size": 8}, 5, 5, 8, 0.7),
    (2, ["sliding"], [2, 6], {"output_multiplier": 0.2, "final_logit_softcapping": 2.5}, 66, 0, 3, 1.3),
    (1, ["full"] * 2, [1, 6], {}, 30, 0, 16, 0),
    (1, ["sliding", "full"], [1, 3, 6], {}, 90, 20, 10, 0.9),
    (1, ["sliding"], [4], {"final_logit_softcapping": 5.0}, 1, 0, 2, 0),
]


def main():
    tool = os.path.abspath(sys.argv[1])
    tensors = {}
    for name in os.listdir(TARGET):
        if name.startswith("model-0") and name.endswith(".safetensors"):
            tensors.update(read_safetensors(os.path.join(TARGET, name)))
    embedding = target_matrix(tensors, "language_model.model.embed_tokens")
    head = target_matrix(tensors, "language_model.lm_head")
    failures = 0
    for number, (version, layers, taps, changes, n, begin, rows, temperature) in enumerate(CASES):
        rng = np.random.default_rng(number)
        config = config_of(version, layers, taps, **changes)
        weights = weights_of(config, rng)
        values = as_bf16(3 * rng.normal(size=(n, len(taps) * H)))[0].astype(np.float32)
        anchor, seed = int(rng.integers(0, 3000)), int(rng.integers(0, 2 ** 62))
        with tempfile.TemporaryDirectory() as folder:
            json.dump(config, open(os.path.join(folder, "config.json"), "w"))
            write_safetensors(os.path.join(folder, "model.safetensors"), weights)
            values.tofile(os.path.join(folder, "taps"))
            told = subprocess.run(
                [tool, TARGET, folder, os.path.join(folder, "taps"), str(begin), str(anchor),
                 str(rows), str(temperature), str(seed)], capture_output=True, text=True, check=False)
        if told.returncode != 0:
            print(f"case {number}: {told.stderr.strip()}")
            failures += 1
            continue
        told = json.loads(told.stdout)
        drafter = Drafter(config, {k: x.astype(np.float64) for k, x in weights.items()},
                          embedding, head)
        context = drafter.context(values.astype(np.float64))
        y = drafter.hidden(context, anchor, rows, begin)
        ids, scores, tokens = drafter.draft(y, anchor, n + 1, temperature, seed)
        worst = 0.0
        for name, want in (("context", context), ("hidden", y), ("scores", scores)):
            have = np.array(told[name]).reshape(want.shape)
            worst = max(worst, np.abs(have - want).max() / np.abs(want).max())
        is_same = told["tokens"] == tokens and (np.array(told["ids"]) == ids.flatten()).all()
        is_good = worst < 1e-5 and is_same
        failures += not is_good
        print(f"case {number}: version {version}, {n} tokens, {rows} rows: largest difference "
              f"{worst:.1e}, {'tokens equal' if is_same else 'TOKENS DIFFER'}")
    print(f"{len(CASES) - failures} of {len(CASES)} equal")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
