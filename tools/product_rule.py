"""How far product rules for quantized weights are from exact products, on Fledgling's own weights.

    python tools/product_rule.py models/fledgling

For every 4-bit matrix of the first layers and rows of bf16 activations (normal values, one channel in a hundred forty
times as large, as residual streams have them): relative RMS error of W·x in float64 when x is read as
  aligned16   16-bit integers on the power of two of the row's largest value
  int8 group  8-bit integers with a scale for each row and group
beside what rounding the result to bf16 costs anyway. docs/decisions/0004-cpu-product-rule.md has the figures.
"""
import glob
import json
import struct
import sys

import numpy as np

N_ROWS = 64


def tensors(path):
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(n))
        data = f.read()
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        yield name, entry["dtype"], entry["shape"], data[begin:end]


def from_bf16(raw):
    return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def to_bf16(x):
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32).astype(np.float64)


def weights(folder):
    files = sorted(glob.glob(f"{folder}/*.safetensors"))
    found = {name: entry for file in files for name, *entry in tensors(file)}
    for name, (dtype, shape, raw) in found.items():
        if not name.endswith(".weight") or dtype != "U32" or len(shape) != 2:
            continue
        scales, biases = (from_bf16(found[name[:-6] + kind][2]) for kind in ("scales", "biases"))
        packed = np.frombuffer(raw, "<u4").reshape(shape)
        n_in = shape[1] * 8
        groups = scales.size // shape[0]
        codes = ((packed[:, :, None] >> (4 * np.arange(8, dtype=np.uint32))) & 15).reshape(shape[0], -1)
        if codes.shape[1] != n_in or n_in % groups:
            continue  # another width
        group = n_in // groups
        yield group, (codes.reshape(shape[0], groups, group) * scales.reshape(shape[0], groups, 1)
                      + biases.reshape(shape[0], groups, 1)).reshape(shape[0], n_in)


def aligned16(x, group):
    exponent = np.maximum(np.floor(np.log2(np.abs(x).max(axis=1, keepdims=True))) + 1, -100)
    return np.clip(np.rint(x * 2.0 ** (15 - exponent)), -32767, 32767) * 2.0 ** (exponent - 15)


def int8_group(x, group):
    grouped = x.reshape(len(x), -1, group)
    scale = np.abs(grouped).max(axis=2, keepdims=True) / 127
    return (np.rint(grouped / np.where(scale == 0, 1, scale)) * scale).reshape(x.shape)


def main():
    random = np.random.default_rng(1)
    errors = {"aligned16": [], "int8 group": [], "bf16 result": []}
    for group, w in weights(sys.argv[1]):
        x = random.standard_normal((N_ROWS, w.shape[1]))
        x[:, random.random(w.shape[1]) < 0.01] *= 40
        x = to_bf16(x)
        exact = x @ w.T

        def error(y):
            return np.sqrt(np.mean((y - exact) ** 2) / np.mean(exact**2))

        errors["aligned16"].append(error(aligned16(x, group) @ w.T))
        errors["int8 group"].append(error(int8_group(x, group) @ w.T))
        errors["bf16 result"].append(error(to_bf16(exact)))
    for rule, values in errors.items():
        print(f"{rule:12} median {np.median(values):.2e}, worst {np.max(values):.2e} over {len(values)} matrices")


main()
