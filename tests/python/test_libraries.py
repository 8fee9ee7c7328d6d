"""The libraries in a process that trains: torch's own, each once."""

import subprocess
import sys

PROGRAM = """
import deepspeed, torch
model = torch.nn.Linear(2, 2)
config = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "Adam"}, "zero_optimization": {"stage": 3}}
engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
engine.backward(engine(torch.ones(1, 2)).sum())
engine.step()
print(torch.__file__)
print("\\n".join({line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}))
"""


def test_loads_one_libtorch():
    torch_file, *libraries = subprocess.check_output([sys.executable, "-c", PROGRAM], text=True).splitlines()
    folder = torch_file.rsplit("/", 1)[0] + "/lib/"
    for name in ("libtorch_cpu.so", "libtorch.so", "libc10.so", "libtorch_python.so"):
        assert [path for path in libraries if path.rsplit("/", 1)[1] == name] == [folder + name]
    assert len([path for path in libraries if "libdeepspeed.so" in path]) <= 1, "the interception is registered twice"
