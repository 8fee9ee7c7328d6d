#!/usr/bin/env python3
"""Checks and times everything for one GPU in one call of under 9 minutes, what tells most first:

    benchmarks/gpu/run.py [OUT] [--rows models|smaller|largest] [--seconds 520] [--pack build/gpu-pack]

OUT (build/gpu-logs) gets figures.md, which is what stands on the terminal, tests.log and log.txt. Each line is there as soon as it
is printed. A step that fails, or that is late, is said so, and the next one begins. README.md beside this file says how to read
the figures.

Takes the torch 2.11 of python3 with its CUDA libraries. Programs that benchmarks/gpu/pack.sh has packed run as they are. Where one
does not load it is built, with nvcc, g++, cmake and ninja. Python's module is always built, beside the tests. Nothing is downloaded.
--rows smaller offloads 4B, where the host has no memory for DeepSpeed's 7B; --rows largest trains the largest models alone.
"""

import argparse
import concurrent.futures
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from compare import reason_in

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGETS = {
    "cuda_tests": "tests/cuda_tests",
    "end_to_end_gpt2_throughput": "benchmarks/end_to_end_gpt2_throughput",
    "kernels_device_bandwidth": "benchmarks/kernels_device_bandwidth",
    "kernels_fused_ops": "benchmarks/kernels_fused_ops",
    "offload_host_step_limits": "benchmarks/offload_host_step_limits",
}
TESTS_AT_A_TIME = 8
LIMIT_OF_A_TEST = 45  # seconds; one that takes longer hangs
LEAST_SECONDS = 10  # a step that has less is left out


class Report:
    """Writes what is said to the terminal and to figures.md at once, and what programs print besides to log.txt."""

    def __init__(self, folder, seconds):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.begin, self.seconds = folder, time.monotonic(), seconds
        self.figures = open(folder / "figures.md", "w", buffering=1)
        self.log = open(folder / "log.txt", "w", buffering=1)
        self.lock = threading.Lock()
        self.failed = []

    def left(self):
        return self.seconds - (time.monotonic() - self.begin)

    def say(self, text):
        with self.lock:
            print(text, flush=True)
            self.figures.write(text + "\n")

    def note(self, name, line):
        with self.lock:
            self.log.write(f"{name}: {line}\n")

    def stamp(self, text):
        self.say(f"[{time.monotonic() - self.begin:.0f} s] {text}")

    def fail(self, name, why):
        self.failed.append(name)
        self.stamp(f"{name}: {why}")


def run_lines(command, seconds, on_line, on_error=None, **options):
    """Runs a command and hands on its lines as they come, those of its standard error to `on_error`.

    Returns its exit status, or None where it was not done after `seconds`: then all of its process group is killed. So it is at the
    end in any case, since what a program leaves running would disturb the next.
    """
    process = subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if on_error else subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        **options,
    )
    streams = [(process.stdout, on_line), (process.stderr, on_error)][: 2 if on_error else 1]

    def read(stream, on_line):
        for line in stream:
            on_line(line.rstrip("\n"))

    readers = [threading.Thread(target=read, args=pair, daemon=True) for pair in streams]
    for reader in readers:
        reader.start()
    try:
        status = process.wait(max(1.0, seconds))
    except subprocess.TimeoutExpired:
        status = None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    for reader in readers:
        reader.join(5)
    return status


class Programs:
    """The programs that were packed, or those that are built here where they do not load."""

    def __init__(self, report, pack):
        self.report, self.pack = report, pack
        self.build = ROOT / "build/gpu"
        self.package = None  # the folder of the Python package, as soon as it is built
        self.folder = pack / "programs"
        self.torch = pathlib.Path(os.environ.get("DEEPSPEED_TORCH_DIR") or importlib.util.find_spec("torch").submodule_search_locations[0])
        libraries = [
            self.folder,
            self.torch / "lib",
            *(self.torch.parent / "nvidia").glob("*/lib"),
            *(pack / "usr/lib").glob("*-linux-gnu"),
        ]
        self.env = dict(os.environ)
        # Libraries that are named there already, as stand-ins for a driver, come first.
        self.env["LD_LIBRARY_PATH"] = ":".join(filter(None, [os.environ.get("LD_LIBRARY_PATH"), *map(str, libraries)]))

    def path(self, name):
        return self.folder / name

    def prepare(self):
        """Unpacks the programs, builds those that do not load, and starts the build of Python's module."""
        self.folder.mkdir(parents=True, exist_ok=True)
        archive = self.pack / "programs.tar.xz"
        if archive.exists():
            with tarfile.open(archive) as tar:
                tar.extractall(self.folder, filter="data")
        missing = [name for name in TARGETS if not self._loads(name)]
        if missing:
            self.report.stamp(f"these programs do not load and are built: {' '.join(missing)}")
            # The tests and GPT-2 come first: what waits for them waits for nothing else.
            for names in (missing[:2], missing[2:]):
                if names and not self._build([TARGETS[name] for name in names]):
                    self.report.fail("build", f"{' '.join(names)} could not be built; log.txt says why")
                    continue
                for file in [*(TARGETS[name] for name in names), *self.build.glob("lib/libdeepspeed_cuda.so*")]:
                    shutil.copy(self.build / file, self.folder)
        self.report.stamp("programs are ready")
        self.module = threading.Thread(target=self._build_module, daemon=True)
        self.module.start()

    def _loads(self, name):
        lines = []
        question = "--gtest_list_tests" if name == "cuda_tests" else "--help"
        try:
            loads = run_lines([self.path(name), question], 30, lines.append, env=self.env) == 0
        except OSError as error:
            loads, lines = False, [str(error)]
        if not loads:
            for line in lines[-5:]:
                self.report.note(f"{name} does not load", line)
        return loads

    def _configure(self, *options):
        command = ["cmake", "--preset", "release", "-B", self.build, "-DDEEPSPEED_CUDA=ON", f"-DDEEPSPEED_TORCH_DIR={self.torch}"]
        # The compiler is the machine's, which may be newer and warn of more. One architecture halves nvcc's time.
        command += ["-DDEEPSPEED_WERROR=OFF", "-DCMAKE_CUDA_ARCHITECTURES=90-real", *options]
        env = dict(os.environ)
        if (self.pack / "usr").is_dir():
            env["CMAKE_PREFIX_PATH"] = ":".join(filter(None, [str(self.pack / "usr"), os.environ.get("CMAKE_PREFIX_PATH")]))
        return run_lines(command, self.report.left(), lambda line: self.report.note("configure", line), cwd=ROOT, env=env) == 0

    def _build(self, targets, with_python=False, cores=None):
        configured = self._configure("-DDEEPSPEED_PYTHON=ON", f"-DPython_EXECUTABLE={sys.executable}")
        if not configured and not with_python:  # without the headers of Python all but its module can be built
            configured = self._configure("-DDEEPSPEED_PYTHON=OFF")
        if not configured:
            return False
        command = ["nice", "-n", "15", "ninja", "-C", self.build, *(["-j", str(cores)] if cores else []), *targets]
        return run_lines(command, self.report.left(), lambda line: self.report.note("build", line)) == 0

    def _build_module(self):
        # Programs that are timed keep some cores to themselves.
        if self._build(["_core"], with_python=True, cores=max(1, (os.cpu_count() or 2) * 5 // 8)):
            self.package = self.build / "python"
            self.report.stamp("Python's module is built")
        else:
            self.report.fail("Python's module", "is not built, rows of Python are left out; log.txt says why")


def run_tests(report, programs, seconds):
    """Each test is a process of its own: an error of the device ends one test, and spoils none of the others."""
    binary, suite, tests = programs.path("cuda_tests"), "", []

    def take(line):
        nonlocal suite
        line = line.partition("#")[0].rstrip()
        if line.startswith("  "):
            tests.append(suite + line.strip())
        elif line.endswith("."):
            suite = line

    run_lines([binary, "--gtest_list_tests"], 30, take, env=programs.env)
    end = time.monotonic() + seconds
    log = open(report.folder / "tests.log", "w", buffering=1)
    env = dict(programs.env, DS_ACCELERATOR="cuda", OMP_NUM_THREADS="2")

    def run_one(test):
        left = end - time.monotonic()
        if left < 1:
            return test, "not begun"
        lines = []

        def keep(line):
            lines.append(line)
            with report.lock:
                log.write(f"{test}: {line}\n")

        status = run_lines([binary, f"--gtest_filter={test}"], min(left, LIMIT_OF_A_TEST), keep, env=env)
        if status is None:
            return test, "not done in time"
        if status != 0:
            reason = re.search(r"^(.*): Failure\n(.*)", "\n".join(lines), re.MULTILINE)
            return test, f"failed with status {status}: {' '.join(reason.groups())[:160] if reason else reason_in(chr(10).join(lines))}"
        return test, "skipped" if any("[  SKIPPED ]" in line for line in lines) else ""

    with concurrent.futures.ThreadPoolExecutor(TESTS_AT_A_TIME) as pool:
        results = list(pool.map(run_one, tests))
    wrong = [(test, why) for test, why in results if why not in ("", "skipped")]
    for test, why in wrong[:40]:
        report.say(f"- {test}: {why}")
    skipped = sum(why == "skipped" for _, why in results)
    report.say(f"{len(results) - len(wrong) - skipped} of {len(results)} tests on the device passed, {skipped} were skipped")
    return bool(tests) and not wrong


def run_profile(report, programs, seconds):
    """One step of GPT-2 124M by kernel: what the device did for how long, and for how long nothing."""
    lines = []
    command = [programs.path("end_to_end_gpt2_throughput"), "--micro_batch", "64", "--steps", "3", "--warmup", "2", "--profile"]
    status = run_lines(command, seconds, lines.append, lambda line: report.note("profile", line), env=programs.env)
    results = [json.loads(line) for line in lines if line.startswith("{")]
    if status != 0 or not results:
        return False
    kernels, step = results[-1]["profile"], results[-1]["step_ms"]
    busy = sum(kernel["ms"] for kernel in kernels)
    report.say(f"\nA step takes {step:.1f} ms; kernels run for {busy:.1f} ms, in {sum(kernel['calls'] for kernel in kernels)} launches.")
    report.say("\n| kernel | launches | ms |\n|---|---|---|")
    for kernel in kernels[:40]:
        report.say(f"| {kernel['name'][:110].replace('|', '/')} | {kernel['calls']} | {kernel['ms']:.2f} |")
    return True


@dataclass
class Step:
    """A part of the run: a function of this file, or what gives the command of a program whose lines are figures."""

    name: str
    seconds: float
    run: Callable
    needs_module: bool = False
    package: Callable = lambda programs: None  # the folder from which its Python imports deepspeed


def steps_of(programs, rows, state):
    def script(name, *arguments):
        return [sys.executable, HERE.parent / name, *arguments]

    def gpt2(model, *rows, own_package=False):
        def command(seconds):
            words = script("gpu/compare.py", "--program", programs.path("end_to_end_gpt2_throughput"), "--model", model)
            words += ["--rows", *rows, "--state", state, "--seconds", str(seconds - 5)]
            if own_package and programs.package:
                words += ["--package", programs.package]
            if (programs.pack / "peer").is_dir():
                words += ["--deepspeed", programs.pack / "peer"]
            return words

        return command

    def fused_ops(seconds):
        # Rows of BERT's width in bf16, the vocabulary of GPT-2.
        sizes = ["--device", "cuda", "--dtype", "bfloat16", "--rows", "65536", "--vocabulary", "50257", "--rounds", "5"]
        return [programs.path("kernels_fused_ops"), *sizes]

    def layer(seconds):
        # BERT large. torch.compile takes half a minute for a row of its own.
        sizes = ["--device", "cuda", "--hidden", "1024", "--heads", "16", "--batch", "32", "--sequences", "512", "128"]
        peers = [
            "--dtypes",
            "bfloat16",
            "--peers",
            "encoder",
            "written",
            "compiled_written",
            "--repeats",
            "5",
            "--seconds",
            str(seconds - 10),
        ]
        return script("kernels/transformer_layer.py", *sizes, *peers)

    def zero3(seconds):
        return script("gpu/compare_zero3.py", "--folder", programs.path("end_to_end_gpt2_throughput").parent, "--rows", rows) + [
            "--seconds",
            str(seconds - 5),
        ]

    if rows == "largest":
        return [Step("ZeRO-3 and offload, the largest models", 500, zero3)]
    return [
        Step("tests", 75, run_tests),
        Step("GPT-2 124M", 60, gpt2("124M", "engine", "graphs", "eager")),
        Step("a step of GPT-2 124M by kernel", 30, run_profile),
        Step("GPT-2 124M compiled", 75, gpt2("124M", "compiled", "compiled_bf16")),
        Step("kernels against a copy", 30, lambda seconds: [programs.path("kernels_device_bandwidth")]),
        Step("fused operators against torch", 40, fused_ops),
        Step("GPT-2 1.5B", 70, gpt2("1.5B", "engine", "eager_bf16", "compiled")),
        Step("ZeRO-3 and offload", 110, zero3, package=lambda programs: programs.pack / "peer"),
        Step("GPT-2 124M from Python", 50, gpt2("124M", "python", "deepspeed", own_package=True), needs_module=True),
        Step("the transformer layer against torch", 60, layer, needs_module=True, package=lambda programs: programs.package),
    ]


def run_step(report, programs, step):
    seconds = min(step.seconds, report.left())
    if seconds < LEAST_SECONDS:
        report.fail(step.name, "left out, the time was up")
        return
    if step.needs_module:
        programs.module.join(max(0, report.left() - step.seconds))
        if not programs.package:
            report.fail(step.name, "left out without Python's module")
            return
    report.say(f"\n## {step.name}")
    if step.run in (run_tests, run_profile):
        passed = step.run(report, programs, seconds)
    else:
        env = dict(programs.env)
        env["PYTHONPATH"] = ":".join(str(path) for path in (step.package(programs), env.get("PYTHONPATH")) if path)
        status = run_lines(step.run(seconds), seconds, report.say, lambda line: report.note(step.name, line), env=env)
        passed = status == 0
        if status is None:
            report.say(f"(not done after {seconds:.0f} s)")
    if passed:
        report.stamp(step.name)
    else:
        report.fail(step.name, "FAILED")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, nargs="?", default=ROOT / "build/gpu-logs")
    parser.add_argument("--rows", choices=["models", "smaller", "largest"], default="models")
    parser.add_argument("--seconds", type=float, default=520)
    parser.add_argument("--pack", type=pathlib.Path, default=ROOT / "build/gpu-pack")
    options = parser.parse_args()
    report = Report(options.out, options.seconds)
    programs = Programs(report, options.pack.resolve())
    programs.prepare()
    if shutil.which("nvidia-smi"):
        run_lines(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"], 10, report.say)
    state = options.out / "comparison.json"
    state.unlink(missing_ok=True)
    for step in steps_of(programs, options.rows, state):
        try:
            run_step(report, programs, step)
        except Exception as error:  # the rest is worth its time whatever failed here
            report.fail(step.name, f"FAILED: {error!r}")
    report.stamp(f"all; not whole: {', '.join(report.failed) or 'nothing'}")
    return bool(report.failed)


if __name__ == "__main__":
    sys.exit(main())
