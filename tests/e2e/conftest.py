"""Starts the real server on the bundled model once for all end-to-end tests."""

import os
import pathlib
import re
import signal
import subprocess
import threading

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def pytest_addoption(parser):
    parser.addoption("--roost", default=str(ROOT / "build/release/roost"), help="the program under test")
    parser.addoption("--device", default="cpu", help="where it runs the model: cpu or cuda")


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "host_only: has nothing to do with a device, or needs kernels that cards do not have")


class Server:
    """A running server; `url` is what its address line says."""

    def __init__(self, program, *flags):
        self.process = subprocess.Popen(
            [program, "serve", str(ROOT / "models/fledgling"), "--port", "0", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log = []
        threading.Thread(target=self._read_log, daemon=True).start()
        line = self.process.stdout.readline()
        match = re.fullmatch(r"roost serves (\S+) on (https?://\S+)\n", line)
        assert match, f"no address line but {line!r}; log: {''.join(self.log)}"
        self.model, self.url = match.groups()

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line)

    def stop(self):
        """Ends the server as an init system does and returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


# What the program does when it is told to use the device; its other commands have no such flag.
ON_DEVICE = """#!/bin/sh
command=$1
shift
case $command in serve | run) set -- --device {device} "$@" ;; esac
exec {path} "$command" "$@"
"""


@pytest.fixture(scope="session")
def program(request, tmp_path_factory):
    path = request.config.getoption("--roost")
    if not os.path.exists(path):
        pytest.fail(f"{path} is not built")
    device = request.config.getoption("--device")
    if device == "cpu":
        return path
    script = tmp_path_factory.mktemp("program") / "roost"
    script.write_text(ON_DEVICE.format(device=device, path=os.path.abspath(path)))
    script.chmod(0o755)
    return str(script)


@pytest.fixture(scope="session")
def server(program):
    running = Server(program)
    yield running
    assert running.stop() == 0
