"""Writes pipe_schedules.txt: hashes of the step tables of DeepSpeed's own schedules (DeepSpeed 0.19.6).

python tests/golden/write_pipe_schedules.py > tests/golden/pipe_schedules.txt

A line is: schedule, stages, micro batches, hash. The hash is FNV-1a of the tables of all stages, one after the other: each
step is its instructions as DeepSpeed prints them, each followed by a space, and a newline; a stage begins with its number
of buffers and a newline; a zero byte ends the text.
"""

from deepspeed.runtime.pipe import schedule

SCHEDULES = {
    "train": schedule.TrainSchedule,
    "inference": schedule.InferenceSchedule,
    "data_parallel": schedule.DataParallelSchedule,
}


def table(made):
    text = f"{made.num_pipe_buffers()}\n"
    for step in made.steps():
        text += "".join(f"{instruction!r} " for instruction in step) + "\n"
    return text


def fnv(text):
    value = 0xCBF29CE484222325
    for byte in text.encode() + b"\0":
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


for name, kind in SCHEDULES.items():
    for stages in range(1, 9):
        for micro_batches in range(1, 17):
            tables = [table(kind(micro_batches, stages, stage)) for stage in range(stages)]
            print(name, stages, micro_batches, f"{fnv(''.join(tables)):016x}")
