"""What a script sees of the package in one process: arguments, configs, errors, types, data."""

import base64
import collections
import copy
import importlib
import inspect
import json
import math
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import deepspeed
from one_engine import CONFIG, make, step


def test_has_deepspeeds_signatures():
    names = list(inspect.signature(deepspeed.initialize).parameters)
    assert names == [
        "args",
        "model",
        "optimizer",
        "model_parameters",
        "training_data",
        "lr_scheduler",
        "distributed_port",
        "mpu",
        "dist_init_required",
        "collate_fn",
        "config",
        "mesh_param",
        "config_params",
    ]
    engine = make()[0]
    assert "exclude_frozen_parameters" in inspect.signature(engine.save_checkpoint).parameters
    assert list(inspect.signature(engine.load_checkpoint).parameters)[:3] == ["load_dir", "tag", "load_module_strict"]


@pytest.mark.parametrize("form", ["dict", "path", "text", "base64", "mapping"])
def test_takes_a_config_in_each_form(form, tmp_path):
    text = json.dumps(CONFIG)
    path = tmp_path / "ds_config.json"
    path.write_text(text)
    given = {
        "dict": dict(CONFIG),
        "path": str(path),
        "text": text,
        "base64": base64.urlsafe_b64encode(text.encode()).decode(),
        "mapping": collections.UserDict(CONFIG),
    }[form]
    assert make(given)[0].train_batch_size() == 2


def test_names_the_key_in_config_errors_of_types_that_scripts_catch(tmp_path):
    for kind in (AssertionError, ValueError, RuntimeError, deepspeed.ConfigError):
        with pytest.raises(kind, match="zero_optimization.stage"):
            make({**CONFIG, "zero_optimization": {"stage": 7}})
    with pytest.raises(AssertionError, match="requires a model"):
        deepspeed.initialize(config=CONFIG)
    with pytest.raises(AssertionError, match="--deepspeed_config"):
        deepspeed.initialize(model=torch.nn.Linear(1, 1))
    path = tmp_path / "twice.json"
    path.write_text('{"train_batch_size": 1, "train_batch_size": 2}')
    with pytest.raises(ValueError, match="the key train_batch_size is given twice"):
        make(str(path))
    with pytest.raises(ValueError, match="mpu: object has no get_model_parallel_group"):
        make(mpu=object())


def test_accepts_autos_infinity_and_keys_of_the_script(caplog):
    config = {**CONFIG, "steps_per_print": float("inf"), "gradient_clipping": "auto", "my_own_key": 1}
    config["zero_optimization"] = {"stage": 2, "reduce_bucket_size": 5e8, "allgather_bucket_size": "auto"}
    engine = make(config)[0]
    step(engine)
    assert engine.config is config and engine.zero_optimization_stage() == 2


def final_weights(habit):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    engine = make({**CONFIG, "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 2}}, model=model)[0]
    for micro in range(4):
        inputs = torch.full((2, 4), 1.0 + micro)
        loss = F.mse_loss(engine(inputs), torch.zeros(2, 3))
        if habit == "boundary":  # step() only where the gradients are complete
            engine.set_gradient_accumulation_boundary(is_boundary=micro % 2 == 1)
            engine.backward(loss)
            if micro % 2 == 1:
                engine.step()
        else:
            engine.backward(loss)
            engine.step()
    assert engine.global_steps == 2
    return model.weight.detach().clone()


def test_gives_the_same_weights_in_each_style_of_accumulation():
    assert torch.equal(final_weights("native"), final_weights("boundary"))


class KeptLayers(torch.nn.Linear):
    """Notes the keyword arguments of its forward."""

    def forward(self, inputs, **options):
        self.options = options
        return super().forward(inputs)


def test_passes_the_share_of_progressive_layer_drop_to_forward():
    engine = make({**CONFIG, "progressive_layer_drop": {"enabled": True, "theta": 0.5, "gamma": 0.1}}, KeptLayers(4, 3))[0]
    seen = []
    for _ in range(3):
        step(engine)
        assert engine.module.options["progressive_layer_drop"] is True
        seen.append(engine.module.options["pld_theta"])
    assert seen == pytest.approx([1.0, 1.0, 0.5 * math.exp(-0.1) + 0.5])
    assert engine.get_pld_theta() == pytest.approx(0.5 * math.exp(-0.2) + 0.5)
    plain = make(model=KeptLayers(4, 3))[0]
    step(plain)
    assert plain.module.options == {} and plain.get_pld_theta() is None


def test_counts_throughput_from_the_first_request_on():
    engine = make({**CONFIG, "gradient_accumulation_steps": 2})[0]
    step(engine)
    timer = engine.tput_timer
    assert timer.batch_size == 4 and timer.micro_step_count == 0
    for _ in range(2 * (timer.start_step + 1) - 1):
        step(engine)
    assert timer.micro_step_count == 5 and timer.global_step_count == 3
    assert timer.avg_samples_per_sec() > 0 and engine.tput_timer is timer


def test_converts_a_module_to_the_configs_dtypes():
    engine = make({**CONFIG, "bf16": {"enabled": True}, "data_types": {"buffer_dtype": "fp16"}})[0]
    engine._assert_valid_mixed_precision_config()
    assert engine._mixed_precision_dtypes() == (torch.bfloat16, torch.float16)
    other = torch.nn.BatchNorm1d(2)
    engine.module = other
    engine._cast_module_mixed_precision(*engine._mixed_precision_dtypes(), False)
    kinds = {name: tensor.dtype for name, tensor in other.state_dict().items()}
    assert kinds == {
        "weight": torch.bfloat16,
        "bias": torch.bfloat16,
        "running_mean": torch.float16,
        "running_var": torch.float16,
        "num_batches_tracked": torch.int64,
    }


def test_scales_only_losses_of_one_number():
    engine = make({**CONFIG, "zero_optimization": {"stage": 1}, "fp16": {"enabled": True, "loss_scale": 8}})[0]
    assert engine.optimizer.needs_scaler() and engine.scale(torch.ones(1)).item() == 8
    with pytest.raises(AssertionError, match=r"shape \(2,\), expected a scalar tensor"):
        engine.scale(torch.ones(2))
    plain = make({**CONFIG, "zero_optimization": {"stage": 1}})[0]
    assert not plain.optimizer.needs_scaler()


def test_finds_attributes_of_the_module():
    model = torch.nn.Linear(4, 3)
    model.own = "mine"
    engine = make(model=model)[0]
    assert engine.own == "mine" and engine.weight is model.weight
    with pytest.raises(AttributeError):
        engine.nothing
    assert engine.module is model and engine.eval() is engine and not model.training


def test_allows_to_destroy_the_group_and_make_it_again():
    for _ in range(3):
        engine = make()[0]
        step(engine)
        del engine
        torch.distributed.destroy_process_group()


def test_loads_the_data_of_initialize():
    data = [(torch.ones(4) * index, torch.zeros(3)) for index in range(8)]
    _, _, loader, _ = make(training_data=data)
    seen = [inputs for inputs, _ in loader]
    assert len(loader) == len(seen) == 4 and seen[0].shape == (2, 4)
    assert sorted(torch.cat(seen)[:, 0].tolist()) == list(range(8))


@pytest.mark.parametrize("seed", [None, 3])
def test_orders_data_only_by_the_configs_seed(seed):
    config = CONFIG if seed is None else {**CONFIG, "seed": seed}
    data = [(torch.ones(4) * index, torch.zeros(3)) for index in range(8)]
    expected = list(torch.utils.data.DistributedSampler(data, num_replicas=1, rank=0, seed=seed or 0))
    for number in (1, 2):
        torch.manual_seed(number)
        loader = make(config, training_data=data)[2]
        assert torch.cat([inputs for inputs, _ in loader])[:, 0].tolist() == expected


def test_shows_the_loss_scale_as_deepspeed_does():
    engine, optimizer, _, _ = make({**CONFIG, "fp16": {"enabled": True, "initial_scale_power": 4, "loss_scale_window": 2}})
    view = optimizer.loss_scale_config
    assert (view.cur_scale, view.cur_iter, view.dynamic_loss_scale, view.scale_window) == (16, 0, True, 2)
    for _ in range(3):
        step(engine, torch.ones(2, 4, dtype=torch.half))
    assert (optimizer.loss_scaler.cur_scale, optimizer.loss_scaler.cur_iter) == (32, 3)


def test_scatters_gradients_in_one_collective():
    from deepspeed.runtime.comm.coalesced_collectives import reduce_scatter_coalesced

    make()
    given = [torch.arange(6.0).view(2, 3), torch.ones(1)]
    parts = reduce_scatter_coalesced(given)
    assert [part.tolist() for part in parts] == [[0, 1, 2, 3, 4, 5], [1]]


def test_runs_alone_without_a_port_or_a_launchers_numbers():
    import os
    import socket
    import subprocess
    import sys

    with socket.socket() as busy:
        try:
            busy.bind(("127.0.0.1", 29500))
            busy.listen()
        except OSError:
            pass  # somebody else has it, which is as good
        program = "import deepspeed; deepspeed.init_distributed(dist_backend='gloo'); deepspeed.zero.Init().__enter__()"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("MASTER_", "RANK", "WORLD_SIZE"))}
        done = subprocess.run([sys.executable, "-c", program], env={**kept, "LOCAL_SIZE": "2"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_refuses_a_scripts_backward_without_zero_as_in_deepspeed():
    engine = make()[0]
    inputs = torch.ones(2, 4, requires_grad=True)
    loss = engine(inputs).sum()
    with pytest.raises(RuntimeError, match=r"Direct calls to tensor.backward.* call engine.backward\(loss\)"):
        loss.backward()
    (grad,) = torch.autograd.grad(engine(inputs).sum(), inputs)  # it reaches no parameter
    assert grad.shape == inputs.shape
    params = list(engine.module.parameters())
    assert [each.shape for each in torch.autograd.grad(engine(inputs).sum(), params)] == [each.shape for each in params]
    engine.backward(engine(inputs).sum())
    engine.step()


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("precision", [{}, {"fp16": {"enabled": True, "loss_scale": 64}}, {"bf16": {"enabled": True}}])
def test_returns_the_models_derivatives_and_trains_penalties_as_torch(precision, stage):
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(next(iter(precision), ""), torch.float32)
    tolerance = {"rtol": 1e-4, "atol": 1e-6} if not precision else {"rtol": 3e-2, "atol": 3e-2}
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    plain = copy.deepcopy(model)
    config = {**CONFIG, **precision, "zero_optimization": {"stage": stage}, "gradient_accumulation_steps": 2, "gradient_clipping": 0.0}
    config["optimizer"] = {"type": "SGD", "params": {"lr": 0.1}}
    engine = make({**config, "zero_allow_untested_optimizer": True}, model=model)[0]
    rows = [torch.randn(2, 4) for _ in range(4)]

    def slope_of(called, row, **options):
        inputs = row.clone().requires_grad_()
        outputs = called(inputs.to(dtype) if called is engine else inputs).float()
        return outputs, torch.autograd.grad(outputs.square().sum(), inputs, **options)[0]

    for is_training in (True, False):
        engine.train(is_training)
        torch.testing.assert_close(slope_of(engine, rows[0])[1], slope_of(plain, rows[0])[1], **tolerance)
    engine.train()
    client = torch.optim.SGD(plain.parameters(), lr=0.1)
    for micro, row in enumerate(rows):
        losses = []
        for called in (engine, plain):
            outputs, slope = slope_of(called, row, create_graph=True)
            losses.append(outputs.mean() + (slope.norm() - 1).square())
        engine.backward(losses[0])
        engine.step()
        (losses[1] / 2).backward()
        if micro % 2:
            client.step()
            client.zero_grad()
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        for ours, torchs in zip(model.parameters(), plain.parameters()):
            torch.testing.assert_close(ours.float(), torchs, **tolerance)


def test_refuses_coalescing_with_sums_in_fp32_as_in_deepspeed():
    sums = {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
    engine = make({**CONFIG, **sums, "zero_optimization": {"stage": 1}})[0]
    with pytest.raises(NotImplementedError, match="optimizer wrapper BF16_Optimizer.* set stage 2"):
        with engine.coalesce_grad_reduction():
            pass


@pytest.mark.parametrize("stage", [0, 3])
def test_names_fp32_buffers_that_a_bf16_forward_refuses(stage):
    config = {**CONFIG, "bf16": {"enabled": True}, "zero_optimization": {"stage": stage}}
    images = torch.ones(2, 3, 4, 4, dtype=torch.bfloat16)

    def engine_of(more):
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.BatchNorm2d(2))
        return deepspeed.initialize(model=model, model_parameters=model.parameters(), config={**config, **more})[0]

    with pytest.raises(deepspeed.DeepSpeedError, match="'1.running_mean' is Float.*data_types.buffer_dtype to .bf16."):
        engine_of({})(images)
    assert engine_of({"data_types": {"buffer_dtype": "bf16"}})(images).shape == (2, 2, 2, 2)


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("arguments", [{"load_optimizer_states": False}, {"load_module_only": True}])
def test_loads_weights_without_the_optimizers_files(stage, arguments, tmp_path):
    engine = make({**CONFIG, "zero_optimization": {"stage": stage}})[0]
    step(engine)
    engine.save_checkpoint(tmp_path, tag="a")
    saved = engine.module.weight.detach().clone()
    for file in (tmp_path / "a").glob("*_optim_states.pt"):
        file.unlink()
    step(engine)
    assert engine.load_checkpoint(tmp_path, **arguments)[0]
    assert torch.equal(engine.module.weight, saved)
    with pytest.raises(FileNotFoundError, match="_optim_states.pt"):
        engine.load_checkpoint(tmp_path)


@pytest.mark.parametrize("was_sparse", [False, True])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_takes_over_sparse_embeddings_in_a_loose_load(was_sparse, is_sparse, tmp_path):
    def engine_of(sparse, *layers):
        config = {"train_batch_size": 2, "sparse_gradients": sparse}
        return deepspeed.initialize(model=torch.nn.Sequential(*layers), config=config)[0]

    linear = torch.nn.Linear(3, 1)
    engine_of(was_sparse, linear, torch.nn.Embedding(5, 3)).save_checkpoint(tmp_path / "both")
    engine_of(was_sparse, linear).save_checkpoint(tmp_path / "linear")
    engine = engine_of(is_sparse, linear, torch.nn.Embedding(5, 3))
    for name, is_there in (("linear", is_sparse), ("both", was_sparse)):
        engine.load_checkpoint(tmp_path / name, load_module_strict=False)
        assert engine.sparse_tensor_module_names == ({"1.weight"} if is_there else set())


@pytest.mark.parametrize("name", ["profiling.flops_profiler.get_model_profile", "autotuning.autotuner.Autotuner"])
def test_refuses_names_of_profilers_and_autotuners(name):
    module, _, member = name.rpartition(".")
    found = getattr(importlib.import_module(f"deepspeed.{module}"), member)
    off_the_package = deepspeed
    for part in name.split("."):
        off_the_package = getattr(off_the_package, part)
    assert off_the_package is found
    with pytest.raises(deepspeed.DeepSpeedError, match=f"{member} is not supported: "):
        found(None)


def test_imports_deepspeeds_packages_at_once():
    names = ("autotuning", "compile", "compression", "elasticity", "io", "linear", "model_implementations", "profiling")
    program = f"import deepspeed; [getattr(deepspeed, name) for name in {names}]"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_has_torch_compiler_under_its_names():
    from deepspeed.runtime import compiler

    assert compiler.is_compile_supported() and not compiler.is_compiling()
    assert compiler.disable(lambda x: x + 1)(1) == 2
