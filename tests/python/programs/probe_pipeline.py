"""Runs the probes of this file, or those that its arguments behind a folder name, on two ranks; each raises where something is wrong."""
import sys
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F

import deepspeed
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
from deepspeed.runtime.pipe.engine import PipelineEngine
from deepspeed.runtime.pipe.module import PipelineError

PROBES = {}
WIDTH, ROWS = 6, 4


def probe(function):
    PROBES[function.__name__] = function
    return function


def make_engine(layers, loss_fn=F.mse_loss, gas=2, kind=PipelineModule, stages=2, config=None, **more):
    torch.manual_seed(3)
    options = {"partition_method": "uniform", **more}
    given = {key: options.pop(key) for key in ("training_data", "optimizer", "lr_scheduler") if key in options}
    model = kind(layers=layers, num_stages=stages, loss_fn=loss_fn, **options)
    settings = {"train_micro_batch_size_per_gpu": ROWS, "gradient_accumulation_steps": gas, "steps_per_print": 1000, **(config or {})}
    if "optimizer" not in given:
        settings["optimizer"] = {"type": "SGD", "params": {"lr": 0.1}}
    settings.setdefault("zero_allow_untested_optimizer", True)
    return deepspeed.initialize(model=model, model_parameters=[*model.parameters()], config=settings, **given)[0]


def linears(count=4):
    torch.manual_seed(5)
    return [nn.Linear(WIDTH, WIDTH) for _ in range(count)]


def batches(count):
    for number in range(count):
        generator = torch.Generator().manual_seed(number)
        yield torch.randn(ROWS, WIDTH, generator=generator), torch.randn(ROWS, WIDTH, generator=generator)


def mean_loss(function, count, loss_fn=F.mse_loss):
    with torch.no_grad():
        return sum(loss_fn(function(inputs), labels).item() for inputs, labels in batches(count)) / count


def expect_close(found, expected):
    assert abs(found - expected) <= 1e-5 * abs(expected), (found, expected)


def expect_error(kind, function, *words):
    try:
        function()
    except kind as error:
        assert all(word in str(error) for word in words), error
        return error
    raise AssertionError(f"no {kind} came")


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


class Fails(nn.Linear):
    where = None

    def forward(self, inputs):
        outputs = super().forward(inputs)
        if Fails.where == "forward":
            raise KeyError("the layer's own")
        if Fails.where == "backward":
            outputs.register_hook(self.fail)
        return outputs

    def fail(self, gradient):
        raise KeyError("the layer's own")


@probe
def an_error_of_a_layer_keeps_its_type_and_ends_the_other_stage():
    for where, stage in (("forward", 1), ("backward", 0)):
        layers = linears(2)
        layers[stage] = Fails(WIDTH, WIDTH)
        engine = make_engine(layers)
        engine.train_batch(batches(2))
        Fails.where = where
        if engine.stage_id == stage:
            error = expect_error(KeyError, lambda: engine.train_batch(batches(2)), "the layer's own")
            if where == "forward" and hasattr(error, "__notes__"):
                assert f"This was in layer {stage} (Fails) of stage {stage} of 2, which was given ({ROWS}, {WIDTH})" in error.__notes__[0]
        else:
            expect_error(deepspeed.CommError, lambda: engine.train_batch(batches(2)), f"rank {stage}", "the layer's own")
        Fails.where = None


@probe
def an_error_of_the_loss_or_of_a_constructor_says_where_it_was():
    def loss_fn(outputs, labels):
        raise KeyError("the loss's own")

    engine = make_engine(linears(2), loss_fn=loss_fn)
    kind = KeyError if engine.is_last_stage() else deepspeed.CommError
    error = expect_error(kind, lambda: engine.train_batch(batches(2)), "the loss's own")
    if engine.is_last_stage():
        assert f"This was in loss_fn of the PipelineModule, which was given the outputs ({ROWS}, {WIDTH})" in error.__notes__[0]
    for method in ("uniform", "parameters"):
        layers = [LayerSpec(nn.Linear, WIDTH, -1), LayerSpec(nn.Linear, WIDTH, "text")]
        error = expect_error((RuntimeError, TypeError), lambda: PipelineModule(layers, num_stages=2, partition_method=method), "")
        index = deepspeed.comm.get_rank() if method == "uniform" else 0
        assert error.__notes__ == [f"This was in the constructor of layer {index} (Linear)."], error.__notes__


@probe
def data_that_end_between_batches_raise_stop_iteration():
    engine = make_engine(linears())
    data = batches(4)
    engine.train_batch(data)
    engine.train_batch()
    expect_error(StopIteration, engine.train_batch)
    expect_error(deepspeed.UsageError, lambda: engine.train_batch(batches(1)), "1 of the 2 micro batches")
    expect_error(deepspeed.UsageError, lambda: engine.eval_batch(None), "need data")
    engine.train_batch(batches(2))
    assert engine.global_steps == 3


@probe
def an_error_of_the_data_keeps_its_type():
    def data():
        yield next(batches(1))
        raise LookupError("the data's own")

    engine = make_engine(linears())
    is_first = engine.is_first_stage()
    expect_error(LookupError if is_first else deepspeed.DeepSpeedError, lambda: engine.train_batch(data() if is_first else batches(2)))
    engine.train_batch(batches(2))


@probe
def evaluation_gives_losses_and_outputs():
    layers = linears()
    engine = make_engine(layers)
    model = nn.Sequential(*layers)
    outputs = [model(inputs).detach() for inputs, _ in batches(3)]
    losses = [F.mse_loss(output, labels).item() for output, (_, labels) in zip(outputs, batches(3))]
    is_last = engine.is_last_stage()
    expect_close(engine.eval_batch(batches(2)).item(), sum(losses[:2]) / 2)
    expect_close(engine.eval_batch(batches(3), num_micro_batches=3).item(), sum(losses) / 3)
    loss, logits = engine.eval_batch(batches(2), return_logits=True)
    expect_close(loss.item(), sum(losses[:2]) / 2)
    assert torch.allclose(logits, outputs[1]) if is_last else logits is None
    found = engine.eval_batch(batches(2), bcast_loss=False)
    assert (found is not None) == is_last
    found = engine.eval_batch(batches(2), reduce_output=None, bcast_loss=False)
    assert [round(loss.item(), 5) for loss in found] == [round(loss, 5) for loss in losses[:2]] if is_last else found is None
    found = engine.eval_batch(batches(2), compute_loss=False, reduce_output=None)
    assert all(torch.allclose(*pair) for pair in zip(found, outputs)) if is_last else found is None
    found = engine.eval_batch(batches(2), compute_loss=False)
    assert torch.allclose(found, sum(outputs[:2]) / 2, atol=1e-6) if is_last else found is None
    expect_error(NotImplementedError, lambda: engine.eval_batch(batches(2), reduce_output="max"))
    assert not model.training or not engine.module.training
    engine.train_batch(batches(2))
    assert engine.module.training


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.full((WIDTH,), index / 10), torch.full((WIDTH,), -index / 10)


@probe
def training_data_are_read_in_order_and_again():
    seen = []
    engine = make_engine(linears(2), training_data=Rows())

    def note(batch):
        seen.extend(round(value.item(), 1) for value in batch[0][:, 0])
        return batch[0] * 2, batch[1]

    engine.set_batch_fn(note)
    for _ in range(2):
        engine.train_batch()
    assert seen == [round(index / 10, 1) for index in [*range(12), *range(4)]], seen
    assert engine.train_batch_size() == 8 and engine.micro_batches == 2
    engine.set_train_batch_size(16)
    assert engine.gradient_accumulation_steps() == engine.micro_batches == 4


@probe
def weights_of_all_stages_in_one_file_are_the_converters_work():
    engine = make_engine(linears())
    expect_error(NotImplementedError, lambda: engine.save_16bit_model(sys.argv[1]), "zero_to_fp32")


class WithLosses(PipelineModule):
    def get_additional_losses(self):
        return {"aux": torch.tensor(2.0 + self.micro_offset % 2)}


@probe
def additional_losses_are_known_on_all_stages():
    engine = make_engine(linears(), kind=WithLosses)
    assert engine.get_additional_losses() is None
    engine.train_batch(batches(2))
    assert engine.get_additional_losses()["aux"].item() == 2.5
    plain = make_engine(linears())
    plain.train_batch(batches(2))
    assert plain.get_additional_losses() is None


@probe
def labels_are_any_objects():
    def loss_fn(outputs, labels):
        return outputs.square().mean() * labels["scale"]

    engine = make_engine(linears(), loss_fn=loss_fn)
    data = [(inputs, {"scale": scale}) for (inputs, _), scale in zip(batches(2), (1.0, 3.0))]
    model_loss = engine.eval_batch(iter(data)).item()
    assert abs(engine.train_batch(iter(data)).item() - model_loss) < 1e-6


@probe
def a_loss_that_is_no_scalar_is_an_error():
    engine = make_engine(linears(), loss_fn=None)
    kind = deepspeed.UsageError if engine.is_last_stage() else deepspeed.CommError
    expect_error(kind, lambda: engine.train_batch(batches(2)), "expected a scalar")


@probe
def calls_of_a_micro_batch_are_refused():
    engine = make_engine(linears())
    assert isinstance(engine, PipelineEngine) and isinstance(engine, deepspeed.DeepSpeedEngine)
    for call in (engine.forward, engine.backward, engine.step, engine.scale, engine.allreduce_gradients):
        expect_error(PipelineError, call, "Only train_batch() is accessible in pipeline mode.")
    with torch.no_grad():
        expect_error(RuntimeError, lambda: engine.train_batch(batches(2)), "train_batch() requires gradients enabled")
    for scope in (engine.no_sync(), engine.coalesce_grad_reduction()):
        expect_error(NotImplementedError, scope.__enter__, "pipeline parallelism")
    assert not engine.is_gradient_accumulation_boundary()


@probe
def the_engine_knows_its_place():
    engine = make_engine(linears())
    rank = deepspeed.comm.get_rank()
    assert engine.stage_id == engine.get_pipeline_parallel_rank() == rank
    assert engine.is_first_stage() == (rank == 0) and engine.is_last_stage() == (rank == 1)
    assert engine.is_pipe_parallel and not engine.is_data_parallel and not engine.is_model_parallel
    assert engine.mpu is engine.grid is engine.module.mpu() and engine.dp_world_size == 1
    assert engine.grid.get_pipe_parallel_world_size() == engine.num_stages == 2
    assert engine.module.stage_owner(3) == 1 and engine.module.partitions() == [0, 2, 4]
    replicas = make_engine(linears(), stages=1)
    assert replicas.dp_world_size == 2 and replicas.train_batch_size() == 2 * 2 * ROWS and not replicas.is_pipe_parallel


@probe
def an_optimizer_and_a_schedule_of_the_script_train():
    def make_optimizer(parameters):
        return torch.optim.SGD(parameters, lr=0.5)

    def make_schedule(optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

    engine = make_engine(linears(), optimizer=make_optimizer, lr_scheduler=make_schedule)
    before = [param.detach().clone() for param in engine.module.parameters()]
    for _ in range(2):
        engine.train_batch(batches(2))
    assert engine.lr_scheduler.last_epoch == 2
    assert engine.get_lr() == [0.125]
    assert not any(torch.equal(old, new) for old, new in zip(before, engine.module.parameters()))


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

    folder, files = sys.argv[1], TorchCheckpointEngine()
    written = PipelineModule(linears(3), num_stages=2, partition_method="uniform")  # layers 0 and 1, and layer 2
    written.save_state_dict(folder, checkpoint_engine=files)
    deepspeed.comm.barrier()
    read = PipelineModule([nn.Linear(WIDTH, WIDTH) for _ in range(3)], num_stages=1)
    read.load_state_dir(folder, checkpoint_engine=files)
    assert all(torch.equal(old, new) for old, new in zip(nn.Sequential(*linears(3)).parameters(), read.parameters()))
    assert written.ckpt_layer_path(folder, 0).endswith(f"layer_0{2 * written.stage_id}-model_states.pt")
    assert written.ckpt_prefix(folder, "tag").endswith(f"tag/module-pipe_0{written.stage_id}")


@probe
def stages_that_do_not_fit_are_errors():
    expect_error(RuntimeError, lambda: PipelineModule(linears()), "must provide num_stages or topology")
    expect_error(RuntimeError, lambda: PipelineModule(linears(6), num_stages=3), "must divide distributed world size")
    expect_error(RuntimeError, lambda: PipelineModule(linears(1), num_stages=2), "1 layers for 2 stages")
    expect_error(NotImplementedError, lambda: PipelineModule(linears(), num_stages=2, partition_method="nonsense"))
    expect_error(RuntimeError, lambda: PipelineModule(linears(), num_stages=2, partition_method="type:conv"), "no valid layers")
    expect_error(deepspeed.ConfigError, lambda: make_engine(linears(), config={"zero_optimization": {"stage": 3}}), "stage 3")


def main():
    deepspeed.init_distributed(dist_backend="gloo")
    for name in sys.argv[2:] or PROBES:
        PROBES[name]()
        print(f"passed {name}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
