"""What the commands say of themselves: the start log, the bench's yardsticks, the memory they keep to."""

import json
import math
import re
import subprocess

import pytest
from conftest import ROOT

MIB = 1 << 20
FLEDGLING = str(ROOT / "models/fledgling")


def fields(log, event, **wanted):
    """The fields of the first line of a log that is this event and has these fields."""
    for line in log:
        found = dict(re.findall(r'(\w+)=("[^"]*"|\S+)', line))
        if f" {event} " in line and all(found.get(k) == v for k, v in wanted.items()):
            return found
    raise AssertionError(f"no {event} {wanted} in the log:\n{''.join(log)}")


def resident_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", status.read()).group(1))


def test_the_start_log_lists_times_and_memory(server):
    for step in ("config", "tokenizer", "template", "checkpoint", "weights", "residency", "engine"):
        line = fields(server.log, "load", step=step)
        assert float(line["ms"]) >= 0
        assert float(line["resident_mib"]) > 0
    plan = fields(server.log, "memory_plan")
    parts = sum(float(plan[k]) for k in plan if k.endswith("_mib") and k != "total_mib")
    assert abs(parts - float(plan["total_mib"])) < 1


def test_resident_memory_is_as_planned(server):
    plan = float(fields(server.log, "memory_plan")["total_mib"]) * MIB
    # Beside what is planned there are the program, its libraries, and what the text side read.
    program = float(fields(server.log, "load", step="template")["resident_mib"]) * MIB
    assert resident_bytes(server.process.pid) <= 1.05 * plan + program


def test_bench_prints_the_limits(program):
    command = [program, "bench", FLEDGLING, "--prompt-rows", "128", "--repetitions", "3"]
    report = json.loads(subprocess.run([*command, "--json"], check=True, capture_output=True, text=True).stdout)
    for limit in ("read_bandwidth_gb_s", "fma_peak_gflop_s"):
        assert report[limit] > 0.1
    for share in ("layers_share_of_bandwidth", "head_share_of_bandwidth", "prompt_share_of_fma_peak"):
        assert math.isfinite(report[share])  # of so small a model no more can be said
    assert sum(report["decode_ms_by_op"].values()) > 0
    table = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "read loop" in table and "FMA" in table and "resident" in table


def test_parts_that_are_left_out_or_missing_are_named(program, tmp_path):
    for file in (ROOT / "models/fledgling").iterdir():
        if file.name != "model-vision.safetensors" and file.is_file():
            (tmp_path / file.name).symlink_to(file)
    index = json.loads((ROOT / "models/fledgling/model.safetensors.index.json").read_text())
    index["weight_map"]["mtp.norm.weight"] = "mtp.safetensors"
    (tmp_path / "model.safetensors.index.json").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    header = json.dumps({"mtp.norm.weight": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "mtp.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    report = subprocess.run([program, "inspect", str(tmp_path)], capture_output=True, text=True)
    assert report.returncode == 0, report.stderr
    assert re.search(r"mtp head +1 tensors, 4 bytes \(mtp.norm.weight\)", report.stdout), report.stdout
    assert re.search(r"model-vision.safetensors +missing; it holds vision tensors only", report.stdout), report.stdout
    said = subprocess.run([program, "run", str(tmp_path), "-p", "Hello", "--max-tokens", "1"],
                          capture_output=True, text=True, check=True).stderr
    assert "vision_shard_missing" in said and "model-vision.safetensors" in said


@pytest.mark.host_only
def test_run_plans_its_memory_as_asked(program):
    command = [program, "run", FLEDGLING, "-p", "Hello", "--max-tokens", "1", "--kv-mib", "16", "--log-level", "info"]

    def n_pages(kv):
        said = subprocess.run([*command, "--kv", kv], check=True, capture_output=True, text=True).stderr
        return int(fields(said.splitlines(), "memory_plan")["n_pages"])

    assert n_pages("int8") > 1.2 * n_pages("bf16")
    refused = subprocess.run([*command, "--kv", "fp4"], capture_output=True, text=True)
    assert refused.returncode == 2 and "flag.value" in refused.stderr
