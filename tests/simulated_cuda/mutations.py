#!/usr/bin/env python3
"""Takes one wait after the other out of the engine, and says whether the simulated device notices.

    scripts/build.sh release simulated_cuda_tests
    tests/simulated_cuda/mutations.py build/release [NAME...]

All waits are changed at once: a variable, TAKEN_OUT, names the one that a run goes without. The changed files are compiled and linked
by the build's own commands, in a folder of their own. Exits with 1 where a wait can go unnoticed.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = "libdeepspeed_inside_objects.a"
PROGRAM = "tests/simulated_cuda_tests"
SWITCH = """#include <cstdlib>
#include <cstring>
inline bool taken_out(const char* name) {
  const char* const asked = std::getenv("TAKEN_OUT");
  return asked != nullptr && std::strcmp(asked, name) == 0;
}
"""

OFFLOAD = "Homes/CudaOffload.TrainsAsOnTheCpu/"
ADAM, HOST, HALF, PARAMS = (OFFLOAD + str(index) for index in (0, 2, 3, 4))
BESIDE = "CudaTraining.IsTheSameDuringBackward*"
READS = "CudaTraining.ReadsWeights*"
ACTIVATION = "CudaActivation.*"
SHARD = "DeviceHostMemory.IsWrittenForAShard*"
BUFFER = "ShardFileBuffer.*"
LOCKED = "DeviceHostMemory.IsUnlocked*"
BUCKET = "GatheredBuckets.*"
PIPELINE = "PipelineValues.*"
RANKS = "HostWaits.*"
GRAPHS = "GraphedTraining.*Offload"
NCCL = "SimulatedNccl."

# Name, file, text before the wait, the wait, tests; where the wait is no statement of its own, what stands there then.
WAITS = [
    ("side stream for the current one", "device/streams/side_stream.cpp", "",
     "if (stream_) StreamEvent(stream_->device()).hold(*stream_);", ADAM),
    ("allocator for the side stream", "device/streams/side_stream.cpp", "", "tensor->record_stream(*stream_);", f"{ADAM}:{ACTIVATION}"),
    ("gathered parameter for its copy", "zero/access/gather_bucket.cpp", "::take(size_t index) {\n  if (is_copying_) ",
     "copies_.join();", PARAMS),
    ("end of a bucket for its copies", "zero/access/gather_bucket.cpp", "  try {\n    ", "copies_.join();", BUCKET),
    ("gathered parameter for the ranks", "zero/access/gather_bucket.cpp", "", "work_.wait();", RANKS),
    ("weights for what was sent", "zero/offload/host_transfers.cpp", "",
     "for (const Buffer& buffer : outgoing_) buffer.copied.hold_current_stream();", ADAM),
    ("weights for what was sent back", "zero/offload/host_transfers.cpp", "",
     "for (const Buffer& buffer : incoming_) buffer.copied.hold_current_stream();", f"{OFFLOAD}*"),
    ("outgoing buffer for its copy", "zero/offload/host_transfers.cpp", "num_sent_ % outgoing_.size()];\n  ", "buffer.copied.wait();",
     ADAM),
    ("incoming buffer for what went back", "zero/offload/host_transfers.cpp", "incoming_.size()];\n  ", "buffer.copied.wait();",
     f"{OFFLOAD}*"),
    ("host for what comes", "zero/offload/host_transfers.cpp", "", "incoming_[index % incoming_.size()].copied.wait();", HALF),
    ("host for a sum", "zero/offload/host_sums.cpp", "", "arrival.copied.wait();", f"{ADAM}:{HOST}"),
    ("writer of a shard for its readers", "zero/shards/shard.cpp", "", "wait_for_reads();", SHARD),
    ("mark of a reader", "zero/shards/shard.cpp", "", "if (is_pinned_) reads_.note(values.device());", SHARD),
    ("mark of each stream", "device/streams/stream_uses.cpp", "marks_[{stream.device_index(), ", "stream.id()", SHARD,
     "(taken_out({}) ? 0 : stream.id())"),
    ("unlocking for the copies", "device/accelerator/host_memory.cpp", "", "synchronize_used_devices();", LOCKED),
    ("unlocking on a used device", "device/accelerator/host_memory.cpp", "synchronize_used_devices();  // any device may copy "
     "from here, whatever this thread's current one is\n    const c10::OptionalDeviceGuard guard(", "used_device()", LOCKED,
     "taken_out({}) ? std::optional<c10::Device>() : used_device()"),
    ("bucket for its buffer", "zero/gradients/partitioned_gradients.cpp", "", "buffer.is_free.hold_current_stream();", HOST),
    ("sums for the ranks", "zero/gradients/bucket_sum.cpp", "", "for (comm::Work& work : works) work.wait();", RANKS),
    ("gradient that is handed over", "zero/gradients/grad_reducer.cpp", "",
     "std::make_shared<device::StreamEvent>(parts_.store.options().device())", BESIDE,
     "(taken_out({}) ? std::make_shared<device::StreamEvent>() : "
     "std::make_shared<device::StreamEvent>(parts_.store.options().device()))"),
    ("host for the norm", "zero/update/grad_norm.cpp", "if (on_host_.defined()) ", "copied_.wait();", RANKS),
    ("accumulators of a captured backward", "engine/step/forward_graphs.cpp", "", "impl::set_grad_accumulator(parameter, {});",
     GRAPHS),
    ("early step for its gradient", "zero/update/early_step.cpp", "", "worker_stream_.copy_at_once(copy, tensor).wait();", BESIDE,
     "{{ const auto copied = worker_stream_.copy_at_once(copy, tensor); if (!taken_out({})) copied.wait(); }}"),
    ("step in place for readers", "zero/update/slice_stepper.cpp", "", "weights.wait_for_reads();", READS),
    ("weights in place for readers", "zero/update/slice_weights.cpp", "", "wait_for_reads();", READS),
    ("backward for an activation", "activation/keep/host_copy.cpp", "", "is_back_.hold_current_stream();", ACTIVATION),
    ("way back for the way there", "activation/keep/host_copy.cpp", "", "copied_.hold_current_stream();", ACTIVATION),
    ("host for the sums of inputs", "activation/keep/input_store.cpp", "", "copied_.wait();", "KeptInputs.PartitionedOverRanksWhose*"),
    ("buffer of a file for its copy", "zero/shards/shard_file.cpp", "", "found->copied.wait();", BUFFER),
    ("read of a file for a buffer's copy", "zero/shards/shard_file.cpp", "", "buffer->copied.wait();", BUFFER),
    ("file of a checkpoint for its copy", "checkpoint/archive/host_snapshot.h", "", "copied_.wait();", "CudaTraining.ResumesFrom*"),
    ("stage for what it receives", "pipe/exchange/channel.cpp", "", "for (comm::Work& work : oldest.works) work.wait();", PIPELINE),
    ("neighbours before what is posted", "pipe/exchange/stage_links.cpp", "neighbours : {&activations_, &gradients_})\n    ",
     "connect(*neighbours, stage, num_stages, /*wraps=*/false, options.device);", PIPELINE),
    ("end of a group for its device", "comm/backends/c10d_group.cpp", "while (", "!has_failed() && !device_work_.is_done()", f"{NCCL}Lets*",
     "!taken_out({}) && !has_failed() && !device_work_.is_done()"),
    ("step for a failure that comes late", "zero/layout/zero_groups.cpp", "if (*group) ", "group->check();", f"{NCCL}Fails*"),
    ("stream of a capture alone", "device/streams/side_stream.cpp", "const bool is_high_priority = ", "use == Use::kCapture",
     "CudaGraphs.TakeNothing*", "!taken_out({}) && use == Use::kCapture"),
    ("end of a capture that fails", "device/graphs/device_graph.cpp", "try {\n      ", "table.end(made.graph_.get());",
     "CudaGraphs.LeaveTorchIntact*"),
    ("weights for the other ranks' parts", "zero/zero_state.cpp", "", "for (comm::Work& work : works) work.wait();", RANKS),
]  # fmt: skip


class Build:
    """The build of a folder, with the changed tree before the project's own."""

    def __init__(self, folder, work):
        self.folder, self.work = folder, work
        self.commands = json.loads((folder / "compile_commands.json").read_text())

    def units_of(self, files):
        """Returns the compilations of the library that read one of the files."""
        names = re.compile("|".join(rf"deepspeed/{re.escape(file)}$" for file in files), re.MULTILINE)
        for command in self.commands:
            if "/deepspeed.dir/" not in command["command"]:
                continue
            made = re.search(r" -o (\S+)", command["command"])[1]
            dependencies = subprocess.run(["ninja", "-t", "deps", made], cwd=self.folder, capture_output=True, text=True)
            if names.search(dependencies.stdout):
                yield command

    def compile(self, command):
        words = shlex.split(command["command"])
        made = self.work / pathlib.Path(words[words.index("-o") + 1]).name
        words[words.index("-o") + 1] = str(made)
        first = next(index for index, word in enumerate(words) if word.startswith("-"))
        words[first:first] = [f"-I{self.work}/tree"]
        done = subprocess.run([*words, "-include", f"{self.work}/switch.h", "-w"], cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            sys.exit("it does not compile: " + done.stderr[:2000])
        return made

    def program(self, objects):
        asked = subprocess.run(["ninja", "-t", "commands", "-s", PROGRAM], cwd=self.folder, capture_output=True, text=True, check=True)
        link = asked.stdout.strip().splitlines()[-1]
        used = re.search(rf"[^\s,]*{re.escape(LIBRARY)}", link)[0]
        library, program = self.work / LIBRARY, self.work / "simulated_cuda_tests"
        shutil.copy(self.folder / used, library)
        subprocess.run(["ar", "r", library, *objects], check=True, capture_output=True)
        link = re.sub(rf"[^\s,]*{re.escape(LIBRARY)}", str(library), link).replace(f"-o {PROGRAM}", f"-o {program}")
        subprocess.run(link, shell=True, cwd=self.folder, check=True, capture_output=True)
        return program


def change(tree):
    """Writes the changed files; returns their names."""
    files = dict.fromkeys(file for _, file, *_ in WAITS)
    for file in files:
        text = (ROOT / "deepspeed" / file).read_text()
        for name, of, before, wait, _, *instead in WAITS:
            if of != file:
                continue
            place = text.find(before + wait)
            if place < 0:
                sys.exit(f"{name}: deepspeed/{file} has no '{before}{wait}' any more")
            place += len(before)
            switched = instead[0].format(f'"{name}"') if instead else f'if (!taken_out("{name}")) {wait}'
            text = text[:place] + switched + text[place + len(wait) :]
        changed = tree / "deepspeed" / file
        changed.parent.mkdir(parents=True, exist_ok=True)
        changed.write_text(text)
    return list(files)


def run(program, name, tests):
    env = dict(os.environ, DS_ACCELERATOR="cuda", DS_TEST_DEVICE="cuda", TAKEN_OUT=name)
    env.pop("GTEST_FILTER", None)
    asked = [program, f"--gtest_filter={tests}", "--gtest_brief=1", "--gtest_fail_fast"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, errors="replace", timeout=300, env=env)
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(asked, "timeout", (error.stdout or b"").decode(errors="replace"), "")


def main():
    folder, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    unnoticed = 0
    with tempfile.TemporaryDirectory() as made:
        work = pathlib.Path(made)
        (work / "switch.h").write_text(SWITCH)
        build = Build(folder, work)
        files = change(work / "tree")
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            program = build.program(list(pool.map(build.compile, build.units_of(files))))
        for name, _, _, _, tests, *_ in WAITS:
            if names and name not in names:
                continue
            ran = run(program, name, tests)
            said = re.search(r"(race|context|capture): .*", ran.stdout)
            found = said.group(0)[:150] if said else f"the test fails, {ran.returncode}"
            unnoticed += ran.returncode == 0
            print(f"{name}: {'UNNOTICED' if ran.returncode == 0 else 'found: ' + found}", flush=True)
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
