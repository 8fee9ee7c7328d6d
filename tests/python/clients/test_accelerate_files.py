"""Accelerate's files, variables and configs are those of the C++ side, for real Accelerate and `accelerate_probe`."""

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import accelerate
import pytest
import yaml
from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import DeepSpeedPlugin, patch_environment
from accelerate.utils.launch import prepare_deepspeed_cmd_env

PROGRAMS = Path(os.environ["DEEPSPEED_PROGRAMS"])
TESTS = PROGRAMS.parent / "tests"


def probe(*words: str, env: dict[str, str] | None = None) -> str:
    """Returns what the probe prints, without the variables of Accelerate that this process has."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("ACCELERATE_")}
    return subprocess.run(
        [TESTS / "accelerate_probe", *map(str, words)], env={**own, **(env or {})}, capture_output=True, text=True, timeout=60
    ).stdout.strip()


def plain(config: ClusterConfig) -> dict:
    """Returns the config's values without enums."""
    return {key: getattr(value, "value", value) for key, value in config.__dict__.items()}


BASE = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED", "num_processes": 2}
PLUGIN = {
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 1.0,
    "offload_optimizer_device": "none",
    "offload_param_device": "none",
    "zero3_init_flag": True,
    "zero_stage": 2,
}
# The guide's files: two of the plugin, two with a config file, the one that is tampered with, the one that is mended.
GUIDE = [
    {**BASE, "deepspeed_config": PLUGIN, "mixed_precision": "fp16", "fsdp_config": {}, "machine_rank": 0, "main_process_ip": None,
     "main_process_port": None, "main_training_function": "main", "num_machines": 1, "use_cpu": False},
    {**BASE, "deepspeed_config": {**PLUGIN, "zero_stage": 3, "offload_param_device": "cpu", "zero3_save_16bit_model": True},
     "mixed_precision": "fp16", "use_cpu": False},
    {**BASE, "deepspeed_config": {"deepspeed_config_file": "/a/zero_stage2_config.json", "zero3_init_flag": True}},
    {**BASE, "deepspeed_config": {"deepspeed_config_file": "/a/zero_stage3_offload_config.json", "zero3_init_flag": True}},
    {**BASE, "deepspeed_config": {**PLUGIN, "deepspeed_config_file": "ds_config.json"}, "command_file": None, "commands": None,
     "downcast_bf16": "no", "dynamo_backend": "NO", "gpu_ids": None, "megatron_lm_config": {}, "rdzv_backend": "static",
     "same_network": True, "tpu_name": None, "tpu_zone": None},
    {**BASE, "deepspeed_config": {"deepspeed_config_file": "ds_config.json", "zero3_init_flag": True}, "num_processes": 4,
     "downcast_bf16": "no", "dynamo_backend": "NO", "fsdp_config": {}, "megatron_lm_config": {}},
]  # fmt: skip

KEYS = {
    "mixed_precision": ["no", "fp16", "bf16", None],
    "use_cpu": [True, False],
    "debug": [True, False],
    "num_processes": [1, 8, -1],
    "machine_rank": [0, 3],
    "num_machines": [1, 4],
    "gpu_ids": ["all", "0,1", "0", 0, None],
    "main_process_ip": ["10.0.0.1", "node-1.cluster", None],
    "main_process_port": [29500, 0, None],
    "rdzv_backend": ["static", "c10d"],
    "same_network": [True, False],
    "main_training_function": ["main", "no"],
    "enable_cpu_affinity": [True, False],
    "downcast_bf16": ["no", "yes", False],
    "tpu_name": ["x", None],
    "tpu_use_sudo": [False],
    "commands": [["a b", "c: d"], None],
    "tpu_env": [[], ["A=1"]],
    "fp8_config": [{}, {"backend": "TE", "margin": 0}],
    "fsdp_config": [{}, {"fsdp_version": 2, "fsdp_offload_params": False}],
    "megatron_lm_config": [{}, {"megatron_lm_tp_degree": 1}],
    "mpirun_config": [{}, {"mpirun_hostfile": "~/hostfile"}],
    "parallelism_config": [{}, {"parallelism_config_dp_replicate_size": 1}],
    "dynamo_config": [{}, {"dynamo_backend": "INDUCTOR", "dynamo_mode": "default", "dynamo_use_fullgraph": False}],
}
PLUGIN_KEYS = {
    "zero_stage": [0, 1, 2, 3],
    "gradient_accumulation_steps": [1, 4, "auto"],
    "gradient_clipping": [1.0, 0.5, "auto", 1e-5],
    "offload_optimizer_device": ["none", "cpu", "nvme"],
    "offload_param_device": ["none", "cpu", "nvme"],
    "offload_optimizer_nvme_path": ["/nvme", "/a b"],
    "offload_param_nvme_path": ["/nvme"],
    "zero3_init_flag": [True, False],
    "zero3_save_16bit_model": [True, False],
    "deepspeed_hostfile": ["hosts"],
    "deepspeed_exclusion_filter": ["worker-0:0,1"],
    "deepspeed_inclusion_filter": ["worker-0@worker-1:0"],
    "deepspeed_multinode_launcher": ["pdsh", "standard", "nossh", "slurm"],
    "deepspeed_moe_layer_cls_names": ["MixtralSparseMoeBlock,JetMoEBlock"],
}


def known(config: dict) -> dict:
    """Returns the keys that this version of Accelerate reads."""
    names = {*ClusterConfig.__dataclass_fields__, "dynamo_backend"}
    return {key: value for key, value in config.items() if key in names}


def random_config(seed: int) -> dict:
    draw = random.Random(seed)
    config = {**BASE, "distributed_type": draw.choice(["DEEPSPEED", "MULTI_GPU", "MULTI_CPU", "NO"])}
    for key, values in KEYS.items():
        if draw.random() < 0.5:
            config[key] = draw.choice(values)
    if config["distributed_type"] == "DEEPSPEED":
        config["deepspeed_config"] = {key: draw.choice(values) for key, values in PLUGIN_KEYS.items() if draw.random() < 0.5}
    return config


def check_both_ways(folder: Path, config: dict) -> None:
    raw, theirs, ours = folder / "raw.yaml", folder / "theirs.yaml", folder / "ours.yaml"
    raw.write_text(yaml.safe_dump(known(config)))
    load_config_from_file(str(raw)).to_yaml_file(str(theirs))
    expected = plain(load_config_from_file(str(theirs)))
    values = json.loads(probe("values", theirs))  # 0.30 lacks some keys
    assert {key: values[key] for key in expected} == json.loads(json.dumps(expected)), theirs.read_text()
    assert probe("rewrite", theirs, ours) == "written", theirs.read_text()
    assert plain(load_config_from_file(str(ours))) == expected, ours.read_text()


@pytest.mark.parametrize("config", GUIDE)
def test_the_files_of_the_guide_are_read_and_written_equally(tmp_path, config):
    check_both_ways(tmp_path, config)
    raw = tmp_path / "raw.yaml"  # as a person writes it, not as Accelerate does
    raw.write_text(yaml.safe_dump(known(config), sort_keys=False))
    expected = json.loads(json.dumps(plain(load_config_from_file(str(raw)))))
    values = json.loads(probe("values", raw))
    assert {key: values[key] for key in expected} == expected


def test_random_files_are_read_and_written_equally(tmp_path):
    for seed in range(60):
        check_both_ways(tmp_path, random_config(seed))


def test_every_key_alone_is_read_and_written_equally(tmp_path):
    for key, values in KEYS.items():
        for value in values:
            check_both_ways(tmp_path, {**BASE, key: value})
    for key, values in PLUGIN_KEYS.items():
        for value in values:
            check_both_ways(tmp_path, {**BASE, "deepspeed_config": {key: value}})


CONFIG_FILE = {
    "bf16": {"enabled": "auto"},
    "zero_optimization": {
        "stage": "auto",
        "stage3_gather_16bit_weights_on_model_save": "auto",
        "offload_optimizer": {"device": "auto", "nvme_path": "auto"},
        "offload_param": {"device": "auto"},
    },
    "gradient_clipping": "auto",
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "steps_per_print": 2000000,
}
FIXED_FILE = {
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "none"}, "offload_param": {"device": "none"}},
    "gradient_clipping": 1.0,
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": 10,
}
FLAGS = [
    [],
    ["--mixed_precision=bf16"],
    ["--mixed_precision=fp16", "--zero_stage=3", "--gradient_accumulation_steps=5", "--gradient_clipping=1.0",
     "--offload_param_device=cpu", "--zero3_save_16bit_model=true"],
    ["--zero_stage=1", "--gradient-clipping=0"],
    ["--offload_optimizer_device=cpu", "--zero3_init_flag=false"],
]  # fmt: skip
YAMLS = [
    None,
    {"zero_stage": 2, "gradient_clipping": 0.5},
    {"zero_stage": 3, "gradient_accumulation_steps": 4, "offload_param_device": "cpu", "zero3_init_flag": True},
]


def combinations(folder: Path):
    """Yields the words of `launch` for flags, YAML files and config files of all kinds."""
    for name, content in (("auto.json", CONFIG_FILE), ("fixed.json", FIXED_FILE)):
        (folder / name).write_text(json.dumps(content))
    count = 0
    for flags, fields, file in itertools.product(FLAGS, YAMLS, [None, "auto.json", "fixed.json"]):
        words = list(flags)
        section = dict(fields or {})
        if file is not None and fields is None:
            words += [f"--deepspeed_config_file={folder / file}"]
        elif file is not None:
            section["deepspeed_config_file"] = str(folder / file)
        config = {**BASE, "deepspeed_config": section} if fields is not None else {**BASE}
        for precision in (None, "fp16") if fields is not None and file is None else (None,):
            path = folder / f"{count}.yaml"
            path.write_text(yaml.safe_dump({**config, **({"mixed_precision": precision} if precision else {})}))
            count += 1
            yield ["--config_file", str(path), *words, "program"]
    # Nothing but the config file in the YAML: what `accelerate config` writes.
    for file in ("auto.json", "fixed.json"):
        path = folder / f"only_{file}.yaml"
        path.write_text(yaml.safe_dump({**BASE, "deepspeed_config": {"deepspeed_config_file": str(folder / file)}}))
        yield ["--config_file", str(path), "program"]


def variables_of_accelerate(words: list[str]) -> dict[str, str]:
    parser = launch_command_parser()
    old, sys.argv = sys.argv, ["accelerate", *words]
    try:
        args: argparse.Namespace = parser.parse_args(words)
    finally:
        sys.argv = old
    args.nondefault = [word.split("=")[0].lstrip("-").replace("-", "_") for word in words if word.startswith("--")]
    args, defaults, from_config = _validate_launch_command(args)
    fields = list(defaults.deepspeed_config)
    args.deepspeed_fields_from_accelerate_config = ",".join(fields + (["mixed_precision"] if from_config else []))
    _, variables = prepare_deepspeed_cmd_env(args)
    return {name: value for name, value in variables.items() if name.startswith("ACCELERATE_")}


def config_of_accelerate(variables: dict[str, str]) -> str:
    try:
        with patch_environment(**variables):
            plugin = DeepSpeedPlugin()
            plugin.set_mixed_precision(variables["ACCELERATE_MIXED_PRECISION"])
        return repr(plugin.deepspeed_config)
    except ValueError as error:
        return f"ERROR {error}"


@pytest.mark.skipif(accelerate.__version__.startswith("0."), reason="older variables")
def test_launch_sets_the_variables_of_accelerate_and_plugins_make_its_config(tmp_path):
    seen = 0
    for words in combinations(tmp_path):
        expected = variables_of_accelerate(words)
        ours = json.loads(probe("variables", *words))
        assert {name: value for name, value in ours.items() if name.startswith("ACCELERATE_")} == expected, words
        config = probe("plugin", expected["ACCELERATE_MIXED_PRECISION"], env=expected)
        assert config.replace("ERROR [config] ", "ERROR ") == config_of_accelerate(expected), (words, expected)
        seen += 1
    assert seen >= 40


def scenario(number: int, folder: Path) -> list[str]:
    """Returns the words of the guide's scenario, and writes its files."""
    tampered = {**PLUGIN, "offload_param_device": "cpu", "zero3_save_16bit_model": True, "zero_stage": 3}
    file = str(folder / "ds_config.json")
    (folder / "ds_config.json").write_text(json.dumps(CONFIG_FILE if number == 3 else FIXED_FILE))
    section = {**(tampered if number == 1 else {"zero3_init_flag": True}), "deepspeed_config_file": file}
    config = {**BASE, "deepspeed_config": section, "main_process_port": 0}
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    flags = ["--config_file", str(folder / "config.yaml")]
    if number == 3:
        flags += ["--mixed_precision=fp16", "--zero_stage=3", "--gradient_accumulation_steps=5", "--gradient_clipping=1.0",
                  "--offload_param_device=cpu", "--offload_optimizer_device=nvme", "--zero3_save_16bit_model=true"]  # fmt: skip
    return flags


def printed(words: list[str]) -> str:
    """Returns what the ranks printed; the error that both print counts once."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ACCELERATE_")}
    lines = subprocess.run(list(map(str, words)), env=env, capture_output=True, text=True, timeout=300).stdout
    return lines.split("ERROR ")[-1].strip() if "ERROR " in lines else lines.strip()


@pytest.mark.skipif(accelerate.__version__.startswith("0."), reason="older variables")
@pytest.mark.parametrize("number", [1, 2, 3])
def test_programs_of_both_languages_print_the_state_of_the_guides_scenarios(tmp_path, number):
    flags = scenario(number, tmp_path)
    launch = [sys.executable, "-m", "accelerate.commands.launch", *flags]
    expected = printed([*launch, Path(__file__).parent / "programs" / "accelerate_state.py"])
    expected = expected.replace("DistributedType.", "")  # how Python 3.11 formats an enum, not 3.10 or 3.12
    assert "ds_config: {" in expected or "the following accelerate config variables will be ignored" in expected
    program = TESTS / "accelerate_state"
    assert printed([*launch, "--no_python", program]).removeprefix("[config] ") == expected
    nvme = ["--offload_optimizer_nvme_path", "/nvme"] if number == 3 else []
    ours = printed([PROGRAMS / "ds_accelerate", "launch", *flags, *nvme, program]).removeprefix("[config] ")
    assert ours.replace("'nvme_path': '/nvme'", "'nvme_path': 'none'") == expected
