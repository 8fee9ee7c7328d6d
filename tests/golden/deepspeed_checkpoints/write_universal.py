"""Makes universal checkpoints of two of the checkpoints here with DeepSpeed's own converter. See README.md.

python write_universal.py
"""

import argparse
import os
import pathlib
import shutil

os.environ.setdefault("DS_ACCELERATOR", "cpu")

HERE = pathlib.Path(__file__).resolve().parent


def main():
    from deepspeed.checkpoint.ds_to_universal import main as convert

    for name in ("stage1_fp32", "stage2_bf16"):
        output = HERE / name / "universal"
        shutil.rmtree(output, ignore_errors=True)
        convert(
            argparse.Namespace(
                input_folder=str(HERE / name / "global_step3"),
                output_folder=str(output),
                num_extract_workers=1,
                num_merge_workers=1,
                keep_temp_folder=False,
                strict=True,
                inject_missing_state=True,
            )
        )


if __name__ == "__main__":
    main()
