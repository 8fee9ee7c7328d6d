#!/usr/bin/env python3
"""Breaks the CUDA kernels by one small change at a time, and says whether the emulated tests notice.

    scripts/build.sh release cuda_emulation_asan_tests cuda_emulation_races_tests cuda_emulation_fused_tests
    tests/cuda_emulation/mutants.py build/release [NAME...]

Each mutant is compiled and linked by the build's own commands. Exits with 1 where a mutant survives.
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / "deepspeed/kernels/cuda"

# Name, build that should notice, file, what is replaced (a regular expression), by what.
MUTANTS = [
    ("tail_skips_one", "fused", "grad_stats", r"i = packs \* kWidth \+ thread;", "i = packs * kWidth + thread + 1;"),
    ("tail_begins_early", "fused", "grad_stats", r"i = packs \* kWidth \+ thread;", "i = packs + thread;"),
    ("scale_of_infinity", "fused", "grad_stats", r"is_finite && clip > 0", "clip > 0"),
    ("skip_that_is_applied", "fused", "grad_stats", r"is_finite \|\| !skips", "true"),
    ("skip_that_writes", "fused", "adam", r"if \(isnan\(\*gradient_scale\)\) return;", ""),
    ("skip_of_a_rule_that_writes", "fused", "update", r"if \(arrays\.gradient_scale != nullptr && isnan\(scale\)\) return;", ""),
    ("scale_of_the_host", "fused", "update", r"\*arrays\.gradient_scale;", "rule.gradient_scale;"),
    ("scale_of_the_host_in_adam", "fused", "adam", r"    set_gradient_scale\(c, \*gradient_scale\);\n", ""),
    ("tree_without_barrier", "races", "grad_stats", r"    __syncthreads\(\);\n", ""),
    ("sign_of_zero", "fused", "sign_compression", r"x\.at\[k\] >= 0", "x.at[k] > 0"),
    ("bits_in_another_order", "fused", "sign_compression", r"<< k;", "<< (7 - k);"),
    ("last_barrier_is_missing", "races", "sign_compression", r"  __syncthreads\(\);\n  const float scale", "  const float scale"),
    ("pack_over_the_end", "asan", "block_quantization", r"begin \+ kElements <= numel", "begin < numel"),
    ("half_a_warp", "fused", "block_quantization", r"lane = kWarp / 2", "lane = kWarp / 4"),
    ("half_a_byte_is_lost", "fused", "block_quantization", r"kBits \+ 7\) / 8", "kBits) / 8"),
    ("no_barrier_of_warps", "races", "block_quantization", r"    __syncthreads\(\);\n", ""),
    (
        "returns_before_barrier",
        "fused",
        "block_quantization",
        r"float x\[kElements\], largest = 0;",
        "if (begin >= numel) return;\n  float x[kElements], largest = 0;",
    ),
    ("index_without_k", "fused", "adam", r"first_index \+ i \* kWidth \+ k", "first_index + i * kWidth"),
    ("upper_half_rounds_down", "fused", "adam", r"bits \+ 0x8000U", "bits + 0x7fffU"),
    ("one_pointer_unchecked", "asan", "adam", r"is_aligned\(a\.exp_avg, sizeof\(Moment\)\) && ", ""),
    ("nan_rounds_at_random", "fused", "adam", r"isnan\(v\) \? 0U : random >> 16", "random >> 16"),
    ("stride_is_too_long", "fused", "update", r"i \+= threads\)", "i += threads + 1)"),
    ("row_without_its_residual", "fused", "normalization", r"add_rn\(values\[k\], others\[k\]\)", "values[k]"),
    ("column_past_the_end", "asan", "normalization", r" \|\| first \+ at >= columns", ""),
    ("words_of_one_block", "fused", "dropout", r"from == k \+ skipped", "from == (k + skipped) % kWords"),
    ("pack_over_the_row", "asan", "dropout", r"    if \(column \+ k >= a\.rows\.columns\) return;\n", ""),
    ("softmax_without_its_largest", "fused", "masked_softmax", r"kept\[pack\]\[k\] - largest\);\n +sum", "kept[pack][k]);\nsum"),
    ("target_is_the_next", "fused", "cross_entropy", r"k == at \?", "k == at + 1 ?"),
    (
        "adds_without_atomics",
        "races",
        "embedding_gradient",
        r"atomicAdd\(to \+ k, (.*)\);",
        "to[k] += is_row ? values[k] : W(NAN);",
    ),
    ("row_of_31_bits", "fused", "normalization", r"\(a\.output\) \+ row \* a\.columns", "(a.output) + int(row * a.columns)"),
    ("sums_of_31_bits", "fused", "normalization", r"\(a\.grad_output\) \+ row \* columns", "(a.grad_output) + int(row * columns)"),
    ("sums_of_one_team", "fused", "normalization", r"other < kOpWarps", "other < 1"),
    ("sums_between_turns", "races", "normalization", r"      __syncthreads\(\);  +// all have read.*\n", ""),
    ("element_of_31_bits", "fused", "activations", r"i = row \* a\.rows\.columns \+ column", "i = int(row * a.rows.columns + column)"),
    ("half_of_31_bits", "fused", "activations", r"\(a\.up\) \+ row \* a\.up_stride", "(a.up) + int(row * a.up_stride)"),
    ("words_of_32_bits", "fused", "dropout", r"uint32_t\(counter >> 32\)", "0U"),
    ("scores_of_31_bits", "fused", "masked_softmax", r"\(a\.scores\) \+ row \* a\.columns", "(a.scores) + int(row * a.columns)"),
    ("mask_of_31_bits", "fused", "masked_softmax", r"int64_t of_mask", "int of_mask"),
    ("head_of_31_bits", "fused", "rotary", r"return int64_t\(batch\) \* strides\[0\]", "return int(int64_t(batch) * strides[0])"),
    ("table_of_31_bits", "fused", "rotary", r"int64_t table =", "int table ="),
    ("logits_of_31_bits", "fused", "cross_entropy", r"\+ row \* a\.columns;", "+ int(row * a.columns);"),
    ("position_of_31_bits", "fused", "embedding_gradient", r"\+ position \* a\.dim", "+ int(position * a.dim)"),
    (
        "table_row_of_31_bits",
        "fused",
        "embedding_gradient",
        r"\(is_row \? index : 0\) \* a\.dim",
        "int((is_row ? index : 0) * a.dim)",
    ),
    ("largest_of_a_pack_alone", "fused", "cross_entropy", r"sum \*= exp_for<T>\(largest - most\);\n", ""),
    ("pairs_of_the_other_pack", "fused", "rotary", r"cos\[kWidth / 2 \+ k\]", "cos[k]"),
    ("maximum_loses_nan", "fused", "update", r"s\[2\] > s\[1\] \? s\[2\] : s\[1\]", "fmax(s[2], s[1])"),
]
SUITES = {"adam": "AdamKernel", "update": "UpdateKernel", "grad_stats": "SumOfSquaresKernel*:*GradientScaleKernel",
          "block_quantization": "QuantizationKernel", "sign_compression": "SignKernel", "normalization": "OpKernel", "dropout": "OpKernel",
          "masked_softmax": "OpKernel", "cross_entropy": "OpKernel", "embedding_gradient": "OpKernel",
          "activations": "OpKernel", "rotary": "OpKernel"}  # fmt: skip


def outcome(build, work, variant, file, pattern, replacement):
    source = KERNELS / f"{file}_kernel.cu"
    text, changes = re.subn(pattern, lambda _: replacement, source.read_text())
    if changes == 0:
        return "the change does not apply"
    mutant, compiled, program = work / "mutant.cu", work / "mutant.o", work / "mutant"
    mutant.write_text(text)
    library = f"emulated_kernels_{variant}.dir"
    commands = json.loads((build / "compile_commands.json").read_text())
    command = next(c for c in commands if c["file"] == str(source) and library in c["command"])
    words = shlex.split(command["command"])
    original = words[words.index("-o") + 1]
    words[words.index("-o") + 1] = str(compiled)
    words[words.index(str(source))] = str(mutant)
    done = subprocess.run([*words, "-w"], cwd=build, capture_output=True, text=True)
    if done.returncode:
        return "it does not compile: " + done.stderr[:300]
    target = f"tests/cuda_emulation_{variant}_tests"
    asked = subprocess.run(["ninja", "-t", "commands", "-s", target], cwd=build, capture_output=True, text=True, check=True)
    link = asked.stdout.strip().splitlines()[-1].replace(original, str(compiled)).replace(f"-o {target}", f"-o {program}")
    subprocess.run(link, shell=True, cwd=build, check=True, capture_output=True)
    ran = subprocess.run([program, f"--gtest_filter=*{SUITES[file]}*", "--gtest_brief=1"], capture_output=True, text=True, timeout=900)
    if ran.returncode == 0:
        return "SURVIVED"
    said = re.search(r"race: [a-z ]*|barrier: [a-z ]*|ERROR: AddressSanitizer: [a-z-]*|runtime error: [^,]*|"
                     r"on the CPU, .* on the device|The difference between .*", ran.stdout + ran.stderr)  # fmt: skip
    return "found: " + (said.group(0)[:90] if said else "the test fails")


def main():
    build, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    survivors = 0
    for name, variant, *change in MUTANTS:
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as work:
            said = outcome(build, pathlib.Path(work), variant, *change)
        survivors += not said.startswith("found")
        print(f"{name} ({variant}): {said}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
