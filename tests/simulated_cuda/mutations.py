#!/usr/bin/env python3
"""Takes one wait after the other out of the engine, and says whether the simulated device notices.

    scripts/build.sh release simulated_cuda_tests
    tests/simulated_cuda/mutations.py build/release [NAME...]

What is changed is compiled and linked by the build's own commands, in a folder of its own. Exits with 1 where a mutation survives.
"""
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

OFFLOAD = "Homes/CudaOffload.TrainsAsOnTheCpu/"
ADAM, DISK, BOTH, HALF, PARAMS, ON_DISK = (OFFLOAD + index for index in ("0", "1", "2", "3", "4", "8"))
BESIDE = "CudaTraining.BesideBackward*"
ACTIVATION = "CudaActivation.*"
SHARD = "DeviceHostMemory.OfAShard*"
PIPELINE = "PipelineValues.*"
RANKS = "HostWaits.*"

# Name, file, what is taken out, what stands there then, tests.
MUTATIONS = [
    ("side_stream_enters_at_once", "device/streams/side_stream.cpp",
     "if (stream_) StreamEvent(stream_->device()).hold(*stream_);", "", ADAM),
    ("tensors_are_not_recorded", "device/streams/side_stream.cpp", "tensor->record_stream(*stream_);", "(void)tensor;",
     f"{ADAM}:{ACTIVATION}"),
    ("gathered_before_its_copies", "zero/access/gather_bucket.cpp",
     "GatherBucket::take(size_t index) {\n  if (is_copying_) copies_.join();", "GatherBucket::take(size_t index) {", PARAMS),
    ("bucket_dies_under_its_copies", "zero/access/gather_bucket.cpp", "    copies_.join();\n  } catch", "  } catch",
     f"{PARAMS}:{BOTH}:GatheredBuckets.*"),
    ("gather_is_not_awaited", "zero/access/gather_bucket.cpp", "  work_.wait();\n  if (is_rounded", "  if (is_rounded", RANKS),
    ("sent_weights_are_not_awaited", "zero/offload/host_transfers.cpp",
     "for (const Buffer& buffer : outgoing_) buffer.copied.hold_current_stream();", "", ADAM),
    ("sent_back_is_not_awaited", "zero/offload/host_transfers.cpp",
     "for (const Buffer& buffer : incoming_) buffer.copied.hold_current_stream();", "", f"{DISK}:{HALF}:{OFFLOAD}*"),
    ("outgoing_buffer_is_busy", "zero/offload/host_transfers.cpp", "  buffer.copied.wait();\n  return memory_of", "  return memory_of",
     ADAM),
    ("incoming_buffer_is_busy", "zero/offload/host_transfers.cpp", "  buffer.copied.wait();  // it may have gone back\n", "",
     f"{DISK}:{HALF}:{OFFLOAD}*"),
    ("incoming_is_not_there", "zero/offload/host_transfers.cpp", "incoming_[index % incoming_.size()].copied.wait();", "", HALF),
    ("sum_is_not_there", "zero/offload/host_sums.cpp", "arrival.copied.wait();", "", f"{ADAM}:{BOTH}"),
    ("shard_is_written_under_readers", "zero/shards/shard.cpp", "  wait_for_reads();\n", "", SHARD),
    ("readers_are_not_noted", "zero/shards/shard.cpp", "if (is_pinned_) reads_.note(values.device());", "", SHARD),
    ("last_reader_alone_is_noted", "device/streams/stream_uses.cpp", "marks_[{stream.device_index(), stream.id()}]",
     "marks_[{stream.device_index(), 0}]", SHARD),
    ("bucket_buffer_is_busy", "zero/gradients/partitioned_gradients.cpp", "buffer.is_free.hold_current_stream();", "",
     f"{ADAM}:{BOTH}"),
    ("sums_are_not_awaited", "zero/gradients/grad_reducer.cpp", "for (comm::Work& work : works) work.wait();", "", RANKS),
    ("gradient_is_handed_over_early", "zero/gradients/grad_reducer.cpp",
     "std::make_shared<device::StreamEvent>(store_.options().device())", "std::make_shared<device::StreamEvent>()", BESIDE),
    ("slice_is_stepped_early", "zero/update/early_step.cpp", "worker_stream_.copy_at_once(copy, tensor).wait();",
     "worker_stream_.copy_at_once(copy, tensor);", BESIDE),
    ("weights_are_stepped_under_readers", "zero/update/slice_stepper.cpp", "      weights.wait_for_reads();\n", "",
     f"{BOTH}:{BESIDE}:{OFFLOAD}5"),
    ("weights_are_written_under_readers", "zero/update/slice_weights.cpp", "    wait_for_reads();\n", "",
     f"{BOTH}:{BESIDE}:{OFFLOAD}5"),
    ("activation_is_not_back", "activation/keep/host_copy.cpp", "is_back_.hold_current_stream();", "", ACTIVATION),
    ("activation_is_not_there", "activation/keep/host_copy.cpp", "copied_.hold_current_stream();", "", ACTIVATION),
    ("sums_of_inputs_are_not_there", "activation/keep/input_store.cpp", "    copied_.wait();\n    Hash", "    Hash", ACTIVATION),
    ("file_buffer_is_busy", "zero/shards/shard_file.cpp", "  found->copied.wait();\n", "", f"{ON_DISK}:{OFFLOAD}9"),
    ("file_is_read_into_a_busy_buffer", "zero/shards/shard_file.cpp", "  buffer->copied.wait();\n", "",
     f"{ON_DISK}:{OFFLOAD}9"),
    ("snapshot_is_not_there", "checkpoint/archive/host_snapshot.h", "copied_.wait();", "", "CudaTraining.GoesOnFrom*"),
    ("stage_receives_early", "pipe/exchange/channel.cpp", "for (comm::Work& work : oldest.works) work.wait();", "", PIPELINE),
    ("partitions_are_gathered_early", "zero/update/partition_gather.cpp", "for (comm::Work& work : works) work.wait();", "", RANKS),
]  # fmt: skip


class Build:
    def __init__(self, folder, work):
        self.folder, self.work = folder, work
        self.commands = json.loads((folder / "compile_commands.json").read_text())
        asked = subprocess.run(["ninja", "-t", "commands", "-s", PROGRAM], cwd=folder, capture_output=True, text=True, check=True)
        self.link = asked.stdout.strip().splitlines()[-1]
        self.library = next(word for word in self.link.split() if word.endswith(LIBRARY))

    def units_of(self, file):
        """Returns the compilations of the library that read a file."""
        for command in self.commands:
            if "deepspeed.dir" not in command["command"] or not command["file"].endswith(".cpp"):
                continue
            dependencies = subprocess.run(["ninja", "-t", "deps", command["output"]], cwd=self.folder, capture_output=True, text=True)
            if re.search(rf"deepspeed/{re.escape(file)}$", dependencies.stdout, re.MULTILINE):
                yield command

    def compile(self, command, include):
        words = shlex.split(command["command"])
        made = self.work / pathlib.Path(words[words.index("-o") + 1]).name
        words[words.index("-o") + 1] = str(made)
        # The changed tree comes first; what it does not hold is found in the project.
        done = subprocess.run([*words[:1], *words[1:2], f"-I{include}", *words[2:], "-w"], cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError("it does not compile: " + done.stderr[:500])
        return made

    def program(self, objects):
        library, program = self.work / LIBRARY, self.work / "simulated_cuda_tests"
        shutil.copy(self.folder / self.library, library)
        subprocess.run(["ar", "r", library, *objects], check=True, capture_output=True)
        link = self.link.replace(self.library, str(library)).replace(f"-o {PROGRAM}", f"-o {program}")
        subprocess.run(link, shell=True, cwd=self.folder, check=True, capture_output=True)
        return program


def outcome(build, file, old, new, tests):
    text = (ROOT / "deepspeed" / file).read_text()
    if old not in text:
        return "the change does not apply"
    changed = build.work / "tree" / "deepspeed" / file
    changed.parent.mkdir(parents=True)
    changed.write_text(text.replace(old, new))
    objects = [build.compile(command, build.work / "tree") for command in build.units_of(file)]
    env = dict(os.environ, DS_ACCELERATOR="cuda", DS_TEST_DEVICE="cuda", OMP_NUM_THREADS="1")
    env.pop("GTEST_FILTER", None)
    asked = [build.program(objects), f"--gtest_filter={tests}", "--gtest_brief=1", "--gtest_fail_fast"]
    try:
        ran = subprocess.run(asked, capture_output=True, text=True, timeout=300, env=env)
    except subprocess.TimeoutExpired as error:
        ran = subprocess.CompletedProcess(asked, 1, (error.stdout or b"").decode(), "")
    if ran.returncode == 0:
        return "SURVIVED"
    said = re.search(r"race: .*", ran.stdout)
    return "found: " + (said.group(0)[:150] if said else f"the test fails ({ran.returncode})")


def main():
    folder, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    survivors = 0
    for name, *change in MUTATIONS:
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as work:
            try:
                said = outcome(Build(folder, pathlib.Path(work)), *change)
            except RuntimeError as error:
                said = str(error)
        survivors += not said.startswith("found")
        print(f"{name}: {said}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
