#!/usr/bin/env python3
"""Predicts a step of GPT-2 124M on an H100 and an H200, without a GPU, from the built kernels and the null GPU's counts.

    benchmarks/gpu/predict.py [--library build/release/lib/libdeepspeed_cuda.so] [--counts tests/golden/null_gpu_steps_2.11.txt]
                              [--cuobjdump PATH] [--head-chunks N] [--without qkv bias]

Prints two tables (markdown): what the compiler made of the operators for sm_90, and the parts of a step with their bytes or
operations, what bounds them, and their milliseconds before (commit b8a29173) and now. Each row says where it comes from.
--head-chunks is the number of chunks of the head's loss, by default what the counts say. --without leaves out rows whose work is
part of another kernel: the stacking of q's, k's and v's gradients, and the passes of their own for bias gradients.

cuobjdump, which disassembles, is not part of nvcc's package. It comes with a whole CUDA toolkit, or by
`pip install --target FOLDER nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm` as FOLDER/nvidia/cu13/bin/cuobjdump.
"""

import argparse
import collections
import pathlib
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]

# ---- The model: micro-batch 64 of 1024 tokens, bf16 with fp32 masters, no dropout
TOKENS, WIDTH, LAYERS, CONTEXT, VOCABULARY = 64 * 1024, 768, 12, 1024, 50304
ACTIVATION = TOKENS * WIDTH * 2  # bytes of [tokens, width] in bf16
PARAMETERS = 124_475_904
PRODUCTS_OF_THE_BLOCKS = LAYERS * 4 * 3  # four layers, forward and two gradients; the head makes three a chunk
LAUNCHES_OF_A_CHUNK = 14


# ---- The devices
@dataclass
class Device:
    name: str
    flops: float  # of bf16 products, dense
    bytes_per_s: float
    multiprocessors: int = 132
    clock: float = 1.70e9  # under load; at most 1.98e9


# NVIDIA's data sheets of the SXM cards: 1,979 TFLOPS "with sparsity", half of it dense; 3.35 and 4.8 TB/s.
DEVICES = [Device("H100", 989e12, 3.35e12), Device("H200", 989e12, 4.8e12)]

PRODUCTS = 0.62  # of the peak: K of 768 is 12 steps of a tile, and power bounds the clock
HEAD_WHOLE = 0.61  # the same product with one long side
HEAD_CHUNKS_OF_667_ROWS = 0.48  # 5.2 tiles of 128 rows, sums with K = 667
ATTENTION = 0.36  # cuDNN's, heads of 64, causal, forward and backward together
COPY = 0.88  # of the peak bandwidth: what a copy of 16 bytes a thread reaches
FEW_WARPS = 0.80  # a norm's backward has 16 warps a multiprocessor, which wait for each other's sums
ISSUE = 0.70  # of four instructions a clock and multiprocessor
GAP = 1.0e-6  # seconds between kernels of one stream, where the host is ahead


# ---- What the compiler made
@dataclass
class Operator:
    """A kernel for aligned rows of bf16, and how many packs it stores for each pack of elements."""

    title: str
    kernel: str  # a regular expression over the demangled name
    before: str  # instructions an element, commit b8a29173
    stored: float = 1
    loaded: int = 1  # in a pass that stores nothing


BF16 = r"<__nv_bfloat16, 8"
OPERATORS = {
    "gelu": Operator("bias GELU", rf"bias_gelu_kernel{BF16}, Team<256>", "40"),
    "gelu_backward": Operator("its backward, with the bias's sums", rf"bias_gelu_backward_kernel{BF16}>", "54"),
    "gelu_backward_alone": Operator("its backward without", rf"\bgelu_backward_kernel{BF16}, Team<256>", "54"),
    "swiglu": Operator("SwiGLU", rf"swiglu_kernel{BF16}, Team<256>", ""),
    "swiglu_backward": Operator("its backward", rf"swiglu_backward_kernel{BF16}, Team<256>", "", stored=2),
    "norm": Operator("norm, with and without residual", rf"norm_kernel{BF16}, Team<32>, true", "23 (+9)", stored=2),
    "norm_backward": Operator("its backward", rf"norm_backward_kernel{BF16}, Team<32>, true, false", ""),
    "loss": Operator("loss, a logit", rf"cross_entropy_kernel{BF16}", "42"),
    "softmax": Operator("masked softmax", rf"masked_softmax_kernel{BF16}, Team<256>, true", ""),
    "softmax_backward": Operator("its backward", rf"softmax_backward_kernel{BF16}, Team<256>, true", ""),
    "dropout": Operator("dropout, with bias and residual", rf"dropout_kernel{BF16}, Team<256>", ""),
    "rotary": Operator("rotary", rf"rotary_kernel{BF16}, unsigned int", "", stored=1.5),
}


class Code:
    """The sm_90 code of a library or of cubins."""

    def __init__(self, cuobjdump, files):
        self.instructions, self.resources = {}, {}
        for file in files:
            self._read(subprocess.run([cuobjdump, "-sass", "-arch", "sm_90", file], capture_output=True, text=True, check=True).stdout)
            usage = subprocess.run([cuobjdump, "-res-usage", "-arch", "sm_90", file], capture_output=True, text=True, check=True)
            for name, registers, stack in re.findall(r"Function (\S+):\s+REG:(\d+) STACK:(\d+)", usage.stdout + usage.stderr):
                self.resources[name] = int(registers), int(stack)
        names = list(self.instructions)
        shown = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.splitlines()
        self.names = {
            name: re.sub(r"deepspeed::kernels::|\(anonymous namespace\)::|^void ", "", text)
            for name, text in zip(names, shown, strict=True)
        }

    def _read(self, text):
        into = None
        for line in text.splitlines():
            begin = re.match(r"\s*Function : (\S+)", line)
            if begin:
                into = self.instructions.setdefault(begin[1], [])
            instruction = re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", line)
            if instruction and into is not None:
                into.append((int(instruction[1], 16), instruction[2]))

    def main_loops(self, name):
        """Returns the instructions of the innermost loops that move 16 bytes at once.

        Blocks that the compiler has put behind a loop jump back into it: of loops that overlap, the one that ends first counts.
        """
        code = self.instructions[name]
        place = {address: index for index, (address, _) in enumerate(code)}
        loops = []
        for end, (_, text) in enumerate(code):
            target = re.search(r"\bBRA\b.*?(0x[0-9a-f]+)$", text)
            begin = place.get(int(target[1], 16)) if target else None
            if begin is not None and begin < end:
                body = [text for _, text in code[begin : end + 1]]
                if any(re.search(r"\b(LDG|STG)\.E\.128", text) for text in body) and all(begin > last for _, last, _ in loops):
                    loops.append((begin, end, body))
        return [body for _, _, body in loops]


def measure(code, operator):
    """Returns instructions an element, the widths of global accesses in the main loops, registers and stack bytes."""
    names = [name for name, text in code.names.items() if re.search(operator.kernel, text)]
    if len(names) != 1:
        raise SystemExit(f"{len(names)} kernels are called {operator.kernel}, expected one: has it other arguments now?")
    widths, passes = collections.Counter(), collections.defaultdict(float)
    for body in code.main_loops(names[0]):
        counts = collections.Counter(
            match[0] for text in body for match in re.findall(r"\b((LDG|STG)\.E(\.(?:128|64|U16|S16|U8|S8))?)\b", text)
        )
        if not any(width.startswith("LDG") for width in counts):
            continue  # it fills rows that are ignored
        widths += counts
        stores = counts["STG.E.128"]
        packs = stores / operator.stored if stores else counts["LDG.E.128"] / operator.loaded
        # A loop with and one without label smoothing, say, are alternatives.
        passes[stores > 0] = max(passes[stores > 0], len(body) / (packs * 8))
    return sum(passes.values()), widths, *code.resources.get(names[0], (0, 0))


# ---- The parts of a step
@dataclass
class Part:
    title: str
    before: float  # milliseconds on an H100, commit b8a29173, as it was estimated by hand
    why: str
    flops: float = 0
    bytes: float = 0
    efficiency: float = COPY
    elements: float = 0
    instructions: float = 0
    seconds: float = 0

    def on(self, device):
        lanes = 128 * device.multiprocessors * device.clock * ISSUE
        if self.flops:
            return self.flops / (device.flops * self.efficiency)
        return max(self.bytes / (device.bytes_per_s * self.efficiency), self.elements * self.instructions / lanes) + self.seconds

    def bound(self, device):
        if self.flops:
            return f"{self.flops / 1e12:.1f} TFLOP at {self.efficiency:.0%}"
        if self.seconds:
            return "launches"
        moved = f"{self.bytes / 1e9:.1f} GB at {self.efficiency:.0%}"
        issue = self.elements * self.instructions / (128 * device.multiprocessors * device.clock * ISSUE)
        return (
            moved
            if issue <= self.bytes / (device.bytes_per_s * self.efficiency)
            else f"issue of {self.instructions:.0f} instructions an element"
        )


def parts_of_step(measured, launches, chunks, without):
    x, wide, logits = ACTIVATION, TOKENS * 4 * WIDTH * LAYERS, TOKENS * VOCABULARY
    weight = WIDTH * VOCABULARY
    parts = [
        Part("products of the blocks", 54, "6 flops a token and weight", flops=6.0 * TOKENS * LAYERS * 12 * WIDTH**2, efficiency=PRODUCTS),
        Part(
            "products of the head",
            32,
            f"{chunks} chunks" if chunks > 1 else "one chunk",
            flops=6.0 * TOKENS * weight,
            efficiency=HEAD_WHOLE if chunks <= 16 else HEAD_CHUNKS_OF_667_ROWS,
        ),
        Part(
            "fp32 sums of the head's weight gradient",
            15,
            "a bf16 product is written and read, an fp32 sum read and written, a chunk" if chunks > 16 else "the product adds in fp32",
            bytes=chunks * weight * (12 if chunks > 16 else 8) if chunks > 1 else 0,
        ),
        Part(
            "attention",
            12,
            "causal: half of 4 flops a token, position and width; the backward 2.5 times as many",
            flops=3.5 * 2 * TOKENS * CONTEXT * WIDTH * LAYERS,
            efficiency=ATTENTION,
        ),
        Part(
            "loss",
            7.5,
            "logits are read twice, a gradient is written",
            bytes=3 * 2 * logits,
            elements=logits,
            instructions=measured["loss"],
        ),
        Part("bias GELU", 5.0, "read, written", bytes=4 * wide, elements=wide, instructions=measured["gelu"]),
        Part("its backward", 7.5, "two read, one written", bytes=6 * wide, elements=wide, instructions=measured["gelu_backward"]),
        Part(
            "norms, with the residual sums",
            8.0,
            "of [tokens, width]: 2 in the first norm, 4 in the others, which add",
            bytes=(2 * LAYERS * 4 + 2) * x,
            elements=25 * x / 2,
            instructions=measured["norm"],
        ),
        Part(
            "their backward",
            7.0,
            "3 in the first norm, 4 in the others; sums of weight and bias in the same pass",
            bytes=(2 * LAYERS * 4 + 3) * x,
            efficiency=FEW_WARPS,
            elements=25 * x / 2,
            instructions=measured["norm_backward"],
        ),
        Part("stack of q's, k's and v's gradients", 3.0, "3 read, 3 written a layer", bytes=0 if "qkv" in without else LAYERS * 6 * x),
        Part(
            "bias gradients beside the GELU's",
            2.5,
            "5 of [tokens, width] are read a layer",
            bytes=0 if "bias" in without else LAYERS * 5 * x,
        ),
        Part("Adam, norm, copies, embedding", 2.0, "36 bytes a parameter, and [tokens, width] twice", bytes=36.0 * PARAMETERS + 4 * x),
        Part("gaps between kernels", 0, f"{launches} launches, copies and memsets without graphs", seconds=launches * GAP),
    ]
    return parts


def read_counts(file):
    """Returns the counts of the step that runs kernel by kernel."""
    counts, inside = {}, False
    for line in file.read_text().splitlines():
        if not line.startswith(" "):
            inside = line.strip() == "eager"
        elif inside:
            kind, _, number = line.strip().rpartition(" ")
            counts[kind] = int(number)
    if "launches: own" not in counts:
        raise SystemExit(f"{file} has no counts of an eager step; the test NullGpuSteps writes them")
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", nargs="+", type=pathlib.Path, default=[ROOT / "build/release/lib/libdeepspeed_cuda.so"])
    parser.add_argument("--counts", type=pathlib.Path, default=ROOT / "tests/golden/null_gpu_steps_2.11.txt")
    parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump"))
    parser.add_argument("--head-chunks", type=int)
    parser.add_argument("--without", nargs="*", choices=["qkv", "bias"], default=[])
    options = parser.parse_args()
    if not options.cuobjdump or not shutil.which(options.cuobjdump):
        raise SystemExit(
            "predict.py: cuobjdump was not found on PATH; install it as this text says, then name it by --cuobjdump\n" + __doc__
        )
    for file in [*options.library, options.counts]:
        if not file.exists():
            raise SystemExit(f"predict.py: {file} does not exist; build with nvcc on PATH, and run the test null_gpu.host")
    code, counts = Code(options.cuobjdump, options.library), read_counts(options.counts)

    print("| operator, aligned rows of bf16 | instructions an element before | now, at most | its loops load, store | registers | stack |")
    print("|---|---|---|---|---|---|")
    measured = {}
    for key, operator in OPERATORS.items():
        each, widths, registers, stack = measure(code, operator)
        measured[key] = each
        moved = ", ".join(f"{count} {width}" for width, count in sorted(widths.items()))
        print(f"| {operator.title} | {operator.before} | {each:.1f} | {moved} | {registers} | {stack} |")
    spilled = [code.names[name] for name, (_, stack) in code.resources.items() if stack]
    print(f"\n{len(code.resources)} kernels of sm_90, {len(spilled)} with a stack{': ' + ', '.join(spilled) if spilled else ''}\n")

    launches = sum(number for kind, number in counts.items() if kind.startswith(("launches", "copies", "memsets", "library")))
    products = sum(number for kind, number in counts.items() if kind.startswith("library"))
    counted_chunks = max(1, (products - PRODUCTS_OF_THE_BLOCKS) // 3)
    chunks = options.head_chunks or counted_chunks
    waits = sum(number for kind, number in counts.items() if kind.startswith("host waits"))
    times = "once" if waits == 1 else f"{waits} times"
    print(f"A step without graphs asks for {launches} launches, copies and memsets. The host waits {times}.")
    if chunks != counted_chunks:
        launches -= (counted_chunks - chunks) * LAUNCHES_OF_A_CHUNK
        print(f"With {chunks} of {counted_chunks} chunks of the head it would ask for {launches}.")
    print()
    print("| part | before, ms on an H100 | now, ms on an H100 | on an H200 | bound on an H100 by | how it was got |")
    print("|---|---|---|---|---|---|")
    parts = parts_of_step(measured, launches, chunks, options.without)
    for part in parts:
        times = " | ".join(f"{1e3 * part.on(device):.1f}" for device in DEVICES)
        print(f"| {part.title} | {part.before:.1f} | {times} | {part.bound(DEVICES[0])} | {part.why} |")
    totals = [sum(part.on(device) for part in parts) for device in DEVICES]
    before = sum(part.before for part in parts)
    print(f"| all | {before:.1f} | {' | '.join(f'{1e3 * total:.1f}' for total in totals)} | | |")
    speeds = " | ".join(f"{TOKENS / total:,.0f}" for total in totals)
    print(f"| tokens/s | {TOKENS / before * 1e3:,.0f} | {speeds} | | |")


if __name__ == "__main__":
    sys.exit(main())
