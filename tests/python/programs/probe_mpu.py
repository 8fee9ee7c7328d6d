"""Probes of layers that ranks cut, by an mpu of two slices with two data-parallel ranks each, against the whole model in plain torch."""

import copy
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

import deepspeed
from deepspeed import checkpointing
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint, load_state_dict_from_zero_checkpoint
from probes import main, probe

SIZE, HIDDEN, ROWS, STEPS, SAVED_AT, CLIPPING = 6, 12, 2, 4, 2, 0.05


class IntoSlices(torch.autograd.Function):
    @staticmethod
    def forward(context, x, group):
        context.group = group
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=context.group)
        return gradient, None


class OutOfSlices(torch.autograd.Function):
    @staticmethod
    def forward(context, x, group):
        total = x.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(context, gradient):
        return gradient, None


class Mpu:
    """Slices are neighbours: of four ranks 0 and 1 have one copy, 2 and 3 the other."""

    def __init__(self):
        rank, world = dist.get_rank(), dist.get_world_size()
        self.model = [dist.new_group([first, first + 1]) for first in range(0, world, 2)][rank // 2]
        self.data = [dist.new_group(range(slice_, world, 2)) for slice_ in range(2)][rank % 2]

    def get_model_parallel_group(self):
        return self.model

    def get_model_parallel_rank(self):
        return dist.get_rank(self.model)

    def get_model_parallel_world_size(self):
        return dist.get_world_size(self.model)

    def get_data_parallel_group(self):
        return self.data

    def get_data_parallel_rank(self):
        return dist.get_rank(self.data)

    def get_data_parallel_world_size(self):
        return dist.get_world_size(self.data)


class StagesMpu(Mpu):
    """Has the model-parallel ranks as stages of the script's own, which share no layer out."""

    def __init__(self):
        super().__init__()
        self.alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]

    def get_tensor_model_parallel_group(self):
        return self.alone

    def get_tensor_model_parallel_rank(self):
        return 0

    def get_tensor_model_parallel_world_size(self):
        return 1


class Layer(nn.Module):
    def __init__(self, number, group):
        super().__init__()
        self.group = group
        rank, size = (dist.get_rank(group), dist.get_world_size(group)) if group is not None else (0, 1)
        generator = torch.Generator().manual_seed(number)

        def normal(*shape):
            return torch.randn(*shape, generator=generator) * 0.3

        self.norm = nn.Parameter(1 + normal(SIZE))
        self.up = nn.Parameter(normal(HIDDEN, SIZE).chunk(size, 0)[rank].clone())
        self.down = nn.Parameter(normal(SIZE, HIDDEN).chunk(size, 1)[rank].clone())
        self.bias = nn.Parameter(normal(SIZE))
        self.up.tensor_model_parallel = self.down.model_parallel = True

    def forward(self, x):
        inner = F.layer_norm(x, (SIZE,), self.norm)
        if self.group is not None:
            inner = IntoSlices.apply(inner, self.group)
        output = torch.tanh(inner @ self.up.t()) @ self.down.t()
        return x + (output if self.group is None else OutOfSlices.apply(output, self.group)) + self.bias


class Model(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.layers = nn.ModuleList(Layer(number, group) for number in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return (x - 1).square().mean()


def config_of(stage, **more):
    return {
        "train_micro_batch_size_per_gpu": ROWS,
        "gradient_clipping": CLIPPING,
        "zero_optimization": {"stage": stage, "stage3_gather_16bit_weights_on_model_save": stage == 3},
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "weight_decay": 0.0, "torch_adam": True}},
        **more,
    }


def engine_of(mpu, stage, model=None, **more):
    model = Model(mpu.get_model_parallel_group()) if model is None else model
    config = config_of(stage, **more)
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config, mpu=mpu)[0]


def batch(step, data_ranks):
    return torch.randn(ROWS * data_ranks, SIZE, generator=torch.Generator().manual_seed(100 + step))


def train(engine, mpu, first, last):
    """Returns the losses over all data-parallel ranks, and the norms."""
    ranks, rank = mpu.get_data_parallel_world_size(), mpu.get_data_parallel_rank()
    losses, norms = [], []
    for step in range(first, last):
        loss = engine(batch(step, ranks)[rank * ROWS : (rank + 1) * ROWS])
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=mpu.get_data_parallel_group())
        losses.append(float(mean) / ranks)
        norms.append(float(engine.get_global_grad_norm()))
    return losses, norms


def train_whole(data_ranks):
    model = Model(None)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(batch(step, data_ranks))
        loss.backward()
        losses.append(float(loss.detach()))
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), CLIPPING)))
        optimizer.step()
    return losses, norms, dict(model.named_parameters())


def part_of(name, whole, mpu):
    if whole.dim() == 1:
        return whole
    return whole.chunk(2, 0 if name.endswith("up") else 1)[mpu.get_model_parallel_rank()]


def assert_whole(engine, mpu, losses, norms):
    expected_losses, expected_norms, weights = train_whole(mpu.get_data_parallel_world_size())
    assert torch.allclose(torch.tensor(losses), torch.tensor(expected_losses), rtol=1e-5), (losses, expected_losses)
    assert torch.allclose(torch.tensor(norms), torch.tensor(expected_norms), rtol=1e-4), (norms, expected_norms)
    with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
        for name, param in engine.module.named_parameters():
            assert torch.allclose(param, part_of(name, weights[name], mpu), atol=1e-5), name
            if param.dim() == 1:
                assert_alike(param, mpu)


def assert_alike(tensor, mpu):
    parts = [torch.empty_like(tensor) for _ in range(2)]
    dist.all_gather(parts, tensor.detach().contiguous(), group=mpu.get_model_parallel_group())
    assert torch.equal(*parts)


def shared_folder():
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    return folder[0]


@probe
def slices_train_as_the_whole_model_and_go_on_from_their_checkpoint():
    mpu = Mpu()
    for stage in range(4):
        folder = shared_folder()
        saving = engine_of(mpu, stage)
        losses, norms = train(saving, mpu, 0, SAVED_AT)
        saving.save_checkpoint(folder, client_state={"stage": stage})
        resuming = engine_of(mpu, stage)
        path, state = resuming.load_checkpoint(folder)
        assert path and state["stage"] == stage
        more_losses, more_norms = train(resuming, mpu, SAVED_AT, STEPS)
        assert_whole(resuming, mpu, losses + more_losses, norms + more_norms)


@probe
def each_slice_has_its_files_of_weights():
    mpu = Mpu()
    own = f"mp_rank_0{mpu.get_model_parallel_rank()}_pytorch_model.bin"
    for stage in range(4):
        folder = shared_folder()
        engine = engine_of(mpu, stage)
        train(engine, mpu, 0, 1)
        engine.save_checkpoint(f"{folder}/run")
        assert engine.save_16bit_model(f"{folder}/weights") is True
        dist.barrier()
        fp32 = get_fp32_state_dict_from_zero_checkpoint(f"{folder}/run", mp_rank=mpu.get_model_parallel_rank())
        with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
            params = {name: param.detach().clone() for name, param in engine.module.named_parameters()}
        for found in (torch.load(f"{folder}/weights/{own}"), fp32):
            assert sorted(found) == sorted(params)
            assert all(torch.equal(found[name], param) for name, param in params.items())
        assert sorted(os.listdir(f"{folder}/weights")) == ["mp_rank_00_pytorch_model.bin", "mp_rank_01_pytorch_model.bin"]
        refuses(lambda: get_fp32_state_dict_from_zero_checkpoint(f"{folder}/run"), "2 model-parallel ranks", "mp_rank = 0 to 1")
        other = Model(mpu.get_model_parallel_group())
        load_state_dict_from_zero_checkpoint(other, f"{folder}/run", mp_rank=mpu.get_model_parallel_rank())
        assert all(torch.equal(param, params[name]) for name, param in other.named_parameters())


def refuses(call, *parts):
    try:
        call()
    except deepspeed.UsageError as error:
        assert all(part in str(error) for part in parts), str(error)
    else:
        raise AssertionError(f"nothing says {parts}")


@probe
def zero_init_keeps_the_values_of_slices():
    mpu = Mpu()
    for arguments in ({"mpu": mpu}, {"data_parallel_group": mpu.get_data_parallel_group()}, {}):
        with deepspeed.zero.Init(config_dict_or_path=config_of(3), **arguments):
            model = Model(mpu.get_model_parallel_group())
        if arguments:
            assert all(hasattr(param, "ds_id") for param in model.parameters())
        engine = engine_of(mpu, 3, model)
        assert_whole(engine, mpu, *train(engine, mpu, 0, STEPS))


@probe
def a_module_that_was_built_is_partitioned_over_the_data_parallel_ranks():
    mpu = Mpu()
    model = Model(mpu.get_model_parallel_group())
    deepspeed.zero.Init(module=model, config_dict_or_path=config_of(3), mpu=mpu)
    assert model.layers[0].bias.partition_numel() == SIZE // 2
    engine = engine_of(mpu, 3, model)
    assert_whole(engine, mpu, *train(engine, mpu, 0, STEPS))


@probe
def the_norm_covers_stages_of_the_scripts_own():
    mpu = StagesMpu()
    for stage in range(4):
        model = nn.Linear(1, 1, bias=False)
        engine = engine_of(mpu, stage, model)
        engine.backward(engine(torch.ones(1, 1)).sum() * (3.0 + mpu.get_model_parallel_rank()))
        engine.step()
        assert abs(float(engine.get_global_grad_norm()) - 5) < 1e-5


@probe
def slices_drop_alike_what_they_hold_alike():
    mpu = Mpu()
    checkpointing.configure(mpu)
    for seed in ({}, {"seed": 5}):
        for has_streams in (False, True):
            torch.manual_seed(7)
            checkpointing.get_cuda_rng_tracker().reset()
            if has_streams:
                checkpointing.model_parallel_cuda_manual_seed(1234)
            expected = torch.Generator().manual_seed(1234)
            engine = engine_of(mpu, 1, **copy.deepcopy(seed))
            drawn = torch.rand(8)
            assert_alike(drawn, mpu)
            if has_streams:
                assert torch.equal(drawn, torch.rand(8, generator=expected))
                with checkpointing.get_cuda_rng_tracker().fork():
                    forked = [torch.empty(8) for _ in range(2)]
                    dist.all_gather(forked, torch.rand(8), group=mpu.get_model_parallel_group())
                assert not torch.equal(*forked)
            assert_whole(engine, mpu, *train(engine, mpu, 0, STEPS))


@probe
def copies_that_differ_between_slices_are_named():
    mpu = Mpu()
    for stage in range(4):
        model = Model(mpu.get_model_parallel_group())
        with torch.no_grad():
            model.layers[1].bias[2] += mpu.get_model_parallel_rank()
        refuses(lambda: engine_of(mpu, stage, model), "'layers.1.bias'", "on rank 0", "on rank 1", "tensor_model_parallel")


if __name__ == "__main__":
    main()
