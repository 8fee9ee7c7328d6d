"""Probes of the layers of a pipeline: how they are built, what goes between them, and where their weights are."""

import os
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F

import deepspeed
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
from probes import main, probe
from small_pipeline import WIDTH, batches, expect_close, linears, make_engine, mean_loss


class Counted(nn.Linear):
    built = 0

    def __init__(self, *sizes):
        super().__init__(*sizes)
        type(self).built += 1


@probe
def described_layers_are_built_on_their_stage_alone():
    for method, others in (("uniform", 0), ("parameters", 4)):
        Counted.built = 0
        model = PipelineModule([LayerSpec(Counted, WIDTH, WIDTH) for _ in range(4)], num_stages=2, partition_method=method)
        assert Counted.built == 2 + others, method
        begin = 2 * model.stage_id
        assert [name for name, _ in model.named_parameters()] == [
            f"{index}.{name}" for index in (begin, begin + 1) for name in ("weight", "bias")
        ]
        assert list(model.state_dict()) == [name for name, _ in model.named_parameters()]


@probe
def random_numbers_are_those_of_the_order_of_the_layers():
    torch.manual_seed(11)
    model = PipelineModule([LayerSpec(nn.Linear, 2, 2), nn.ReLU(), LayerSpec(nn.Linear, 2, 2)], num_stages=2)
    torch.manual_seed(11)
    counted = [nn.Linear(2, 2) for _ in range(2)]  # partition_method "parameters" builds each once, and drops it
    own = nn.Linear(2, 2)
    assert len(counted) == 2 and torch.equal(next(model.parameters()), own.weight)


@probe
def values_inside_of_a_stage_are_any_objects():
    first, second, third, fourth = linears()
    layers = [
        lambda x: {"hidden": first(x), "rest": [None, "text"]},
        lambda found: (second(found["hidden"]), None, torch.arange(3)),
        lambda found: SimpleNamespace(hidden=third(found[0]), is_none=found[1] is None, count=found[2].sum()),
        lambda found: (fourth(found.hidden) * found.count * found.is_none,),
    ]
    holder = [nn.ModuleList([first, second]), nn.ModuleList([third, fourth])][deepspeed.comm.get_rank()]
    torch.manual_seed(0)

    def loss_fn(outputs, labels):
        assert isinstance(outputs, tuple) and len(outputs) == 1
        return F.mse_loss(outputs[0], labels)

    class Model(PipelineModule):
        def _build(self):
            super()._build()
            self.holder = holder

    engine = make_engine(layers, loss_fn=loss_fn, kind=Model)
    expected = mean_loss(lambda x: fourth(third(second(first(x)))) * 3, 2)
    whole = nn.ModuleList([first, second, third, fourth])
    assert sum(1 for _ in whole.parameters()) == 8 and len(list(engine.parameters())) == 4
    expect_close(engine.train_batch(batches(2)).item(), expected)


@probe
def a_tuple_of_one_stays_a_tuple_between_stages():
    layers = linears(2)
    functions = [layers[0], lambda x: (x,), lambda found: found[0] * len(found), layers[1]]
    expected = mean_loss(lambda x: layers[1](layers[0](x)), 2)
    expect_close(make_engine(functions).train_batch(batches(2)).item(), expected)


@probe
def layers_may_change_their_inputs_in_place():
    data = list(batches(2))
    kept = [(inputs.clone(), labels.clone()) for inputs, labels in data]
    engine = make_engine([nn.ReLU(inplace=True), nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True), nn.Linear(WIDTH, WIDTH)])
    engine.train_batch(iter(data))
    assert all(torch.equal(old, new) for pair, other in zip(kept, data) for old, new in zip(pair, other))


@probe
def tied_weights_stay_alike():
    layers = [
        TiedLayerSpec("tie", nn.Linear, WIDTH, WIDTH),
        LayerSpec(nn.Linear, WIDTH, WIDTH),
        nn.ReLU(),
        TiedLayerSpec("tie", nn.Linear, WIDTH, WIDTH, forward_fn=lambda module, x: x @ module.weight),
        TiedLayerSpec("alone", nn.Linear, WIDTH, WIDTH),
        nn.Identity(),
    ]
    engine = make_engine(layers)
    for _ in range(3):
        engine.train_batch(batches(2))
    weight = engine.module.tied_modules["tie"].weight.detach()
    both = [torch.empty_like(weight) for _ in range(2)]
    deepspeed.comm.all_gather(both, weight)
    assert torch.equal(*both)
    assert ("tied_modules.alone.weight" in dict(engine.module.named_parameters())) == engine.is_last_stage()
    assert engine.module.tied_comms["tie"]["ranks"] == [0, 1]


@probe
def a_reentrant_recomputation_reaches_the_first_layer():
    def recompute(function, *inputs):
        return torch.utils.checkpoint.checkpoint(function, *inputs, use_reentrant=True)

    layers = linears()
    expected = mean_loss(nn.Sequential(*layers), 2)
    engine = make_engine(layers, activation_checkpoint_interval=1, activation_checkpoint_func=recompute)
    before = [param.detach().clone() for param in engine.module.parameters()]
    expect_close(engine.train_batch(batches(2)).item(), expected)
    assert not any(torch.equal(old, new) for old, new in zip(before, engine.module.parameters()))


@probe
def files_of_layers_fit_any_cut():
    from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine

    folder, files = os.getcwd(), TorchCheckpointEngine()
    written = PipelineModule(linears(3), num_stages=2, partition_method="uniform")  # layers 0 and 1, and layer 2
    written.save_state_dict(folder, checkpoint_engine=files)
    deepspeed.comm.barrier()
    read = PipelineModule([nn.Linear(WIDTH, WIDTH) for _ in range(3)], num_stages=1)
    read.load_state_dir(folder, checkpoint_engine=files)
    assert all(torch.equal(old, new) for old, new in zip(nn.Sequential(*linears(3)).parameters(), read.parameters()))
    assert written.ckpt_layer_path(folder, 0).endswith(f"layer_0{2 * written.stage_id}-model_states.pt")
    assert written.ckpt_prefix(folder, "tag").endswith(f"tag/module-pipe_0{written.stage_id}")


if __name__ == "__main__":
    main()
