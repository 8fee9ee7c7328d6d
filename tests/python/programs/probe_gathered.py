"""Probes of zero.GatheredParameters: what is written, taken and saved inside of it, and outside."""

import contextlib
import copy
import io
import logging
import tempfile

import torch
import torch.nn as nn

import deepspeed
from probes import main, probe
from small_net import average_gradients, batch, config as config_of, expect_close, make_engine, make_net, step_of, train, train_plain


def write_by_fill(weight):
    with torch.no_grad():
        weight.fill_(2.0)


def write_by_init(weight):
    nn.init.constant_(weight, 3.0)


def write_by_data(weight):
    weight.data = torch.full((24, 24), 5.0)


@probe
def writes_under_gathered_parameters_reach_all_ranks():
    model = make_net()
    engine = make_engine(model=model)
    weight = model.inner.weight
    for write, value in ((write_by_fill, 2.0), (write_by_init, 3.0), (write_by_data, 5.0)):
        with deepspeed.zero.GatheredParameters(weight, modifier_rank=0):
            if deepspeed.comm.get_rank() == 0:
                write(weight)
        with deepspeed.zero.GatheredParameters([weight]):
            assert torch.equal(weight.data, torch.full((24, 24), value)), write.__name__
    changed = make_net()
    write_by_data(changed.inner.weight)
    expect_close(train(engine), train_plain(changed))


@probe
def state_dicts_are_loaded_module_by_module():
    """Is what loaders of pretrained models do, which give each module its part of a file."""
    model, other = make_net(), make_net(1)
    engine = make_engine(model=model)
    state, missing, unexpected, errors = other.state_dict(), [], [], []

    def load(module, prefix=""):
        params = list(module.parameters(recurse=False))
        with deepspeed.zero.GatheredParameters(params, modifier_rank=0):
            if deepspeed.comm.get_rank() == 0:
                module._load_from_state_dict(state, prefix, {}, True, missing, unexpected, errors)
        for name, part in module.named_children():
            load(part, prefix + name + ".")

    load(model)
    assert not missing and not errors, (missing, errors)
    expect_close(train(engine), train_plain(other))


@probe
def what_is_gathered_is_given_in_many_forms():
    model, ordinary = make_net(), torch.ones(1)
    engine = make_engine(model=model)
    weight = model.inner.weight
    forms = (weight, [weight], (None, weight, ordinary), (param for param in model.parameters()), model.inner.parameters(), {weight: 1})
    for form in forms:
        with deepspeed.zero.GatheredParameters(form):
            assert torch.allclose(weight.data, make_net().inner.weight.data)
        assert weight.ds_status.name == "NOT_AVAILABLE" and torch.equal(ordinary, torch.ones(1))
    for form in ([], [None], ordinary, iter(())):
        with deepspeed.zero.GatheredParameters(form, modifier_rank=0):
            assert weight.ds_status.name == "NOT_AVAILABLE"
    expect_close(train(engine), train_plain(make_net()))


@probe
def whole_tensors_are_copied_and_saved():
    model = make_net()
    engine = make_engine(model=model)
    train(engine)
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        kept, file = copy.deepcopy(model.inner.weight), io.BytesIO()
        torch.save(model.state_dict(), file)
        expected = {name: value.clone() for name, value in model.state_dict().items()}
    file.seek(0)
    loaded = torch.load(file)
    assert list(loaded) == list(expected) and all(torch.equal(loaded[name], expected[name]) for name in expected)
    assert type(kept) is nn.Parameter and torch.equal(kept, expected["inner.weight"])


@probe
def a_state_dict_is_saved_while_it_is_whole_alone():
    model = make_net()
    engine = make_engine(model=model)
    state = model.state_dict()
    assert [tuple(value.shape) for value in state.values()] == [tuple(value.shape) for value in make_net().state_dict().values()]
    warnings = warnings_of(deepspeed.logger)
    if deepspeed.comm.get_rank() == 0:  # alone
        with warnings as lines:
            for what in (state, model, list(model.parameters())):
                file = io.BytesIO()
                torch.save(what, file)
                file.seek(0)
                loaded = torch.load(file, weights_only=what is state)
                values = loaded.values() if what is state else loaded.parameters() if what is model else loaded
                assert {tuple(value.shape) for value in values} == {(0,)}
        assert len(lines) == 1 and "'embed.weight'" in lines[0] and "engine.save_16bit_model()" in lines[0], lines
    expect_close(train(engine), train_plain(make_net()))


@contextlib.contextmanager
def warnings_of(logger):
    """Gives the list of the logger's lines, which the scope fills."""
    lines = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


def make_persistent_engine(model, dtype="fp32"):
    more = {} if dtype == "fp32" else {dtype: {"enabled": True}}
    config = {**config_of(3, **more), "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 100}}
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


@probe
def what_says_that_it_is_whole_is_written():
    """As scripts do that fuse adapters, gathering what is not available alone."""
    for dtype in ("fp32", "bf16"):
        model, plain = make_net(), make_net()
        engine = make_persistent_engine(model, dtype)
        bias, weight = model.inner.bias, model.inner.weight
        train(engine, 1)
        with deepspeed.zero.GatheredParameters(model.parameters()):
            for of_plain, param in zip(plain.parameters(), model.parameters()):
                of_plain.data = param.detach().float()
        assert bias.ds_status.name == "AVAILABLE" and weight.ds_status.name == "NOT_AVAILABLE"
        expected = (bias.detach() + 1.0) * 2.0
        bias.data += 1.0
        with torch.no_grad():
            bias.mul_(2.0)
        plain.inner.bias.data = expected.float()
        assert torch.equal(bias.float(), plain.inner.bias), "it is read where it was written"
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        saved = torch.load(file)
        assert torch.equal(saved["inner.bias"], bias) and saved["inner.weight"].numel() == 0
        tokens, _ = batch()
        with torch.no_grad():
            assert torch.allclose(engine(tokens).float(), plain(tokens), atol=1e-6 if dtype == "fp32" else 0.1)
        assert torch.equal(deepspeed.utils.safe_get_full_fp32_param(bias), plain.inner.bias)
        step_of(engine, 5)
        assert (bias.float() - plain.inner.bias).abs().max() < 0.1, "the step begins with what was written"


@probe
def a_write_that_differs_between_ranks_is_refused_and_named():
    model = make_net()
    engine = make_persistent_engine(model)
    train(engine, 1)
    bias, rank = model.inner.bias, deepspeed.comm.get_rank()
    bias.data += rank
    for meeting in (lambda: train(engine, 1), engine.empty_partition_cache):
        try:
            meeting()
            raise AssertionError("other values were taken")
        except RuntimeError as error:
            assert "'inner.bias' was written outside" in str(error) and "with other values on rank 1" in str(error), error
    bias.data.fill_(3.0)
    train(engine, 1)
    try:
        model.inner.weight.data += 1.0
        raise AssertionError("it was written")
    except RuntimeError as error:
        assert "'inner.weight' is partitioned" in str(error) and "modifier_rank" in str(error), error


@probe
def a_write_on_one_rank_alone_is_an_error_of_the_next_meeting():
    model = make_net()
    engine = make_persistent_engine(model)
    train(engine, 1)
    if deepspeed.comm.get_rank() == 0:
        model.inner.bias.data += 1.0
    try:
        train(engine, 1)
        raise AssertionError("the ranks went on")
    except deepspeed.DeepSpeedError as error:
        assert "'inner.bias', which was written outside of" in str(error), error


@probe
def tensors_of_the_flat_buffer_are_cloned_to_be_saved_alone():
    def size_of(state):
        file = io.BytesIO()
        torch.save(state, file)
        return len(file.getvalue())

    for stage in (1, 2):
        model = make_net()
        engine = make_engine(stage, model)
        train(engine)
        cloned = deepspeed.checkpoint.utils.clone_tensors_for_torch_save(model.state_dict())
        assert all(torch.equal(cloned[name], value) for name, value in model.state_dict().items())
        assert size_of({"bias": cloned["inner.bias"]}) < 24 * 4 + 4000, "one tensor brings others along"
        assert cloned["inner.bias"].untyped_storage().nbytes() == 24 * 4


@probe
def gradients_stay_with_parameters_at_stage_0_alone():
    plain = make_net()
    tokens, targets = batch()
    nn.functional.cross_entropy(plain(tokens), targets).backward()
    average_gradients(plain)
    for stage in (0, 1, 2, 3):
        model = make_net()
        engine = make_engine(stage, model)
        engine.backward(nn.functional.cross_entropy(engine(tokens), targets))
        for param, expected in zip(model.parameters(), plain.parameters()):
            assert (param.grad is not None) == (stage == 0), stage
            assert torch.allclose(deepspeed.utils.safe_get_full_grad(param), expected.grad, atol=1e-6), stage
            assert stage > 0 or torch.allclose(param.grad, expected.grad, atol=1e-6)


@probe
def values_taken_under_gathered_parameters_stay():
    engine = make_engine()
    kept, arrays = {}, {}
    for name, param in engine.module.named_parameters():
        with deepspeed.zero.GatheredParameters(param):
            kept[name] = param.detach().cpu()  # on a CPU the parameter's own memory
            arrays[name] = param.data.numpy()
    expected = {name: value.clone() for name, value in kept.items()}
    train(engine)
    changed = 0
    for name, param in engine.module.named_parameters():
        assert torch.equal(kept[name], expected[name]), name
        assert (arrays[name] == expected[name].numpy()).all(), name
        with deepspeed.zero.GatheredParameters(param):
            changed += not torch.equal(param, kept[name])
    assert changed > 0


@probe
def weights_of_a_checkpoint_load_where_parameters_are_read():
    folder = [tempfile.mkdtemp()]
    torch.distributed.broadcast_object_list(folder)
    model = make_net()
    engine = make_engine(model=model)
    train(engine, 1)
    engine.save_checkpoint(folder[0])
    with deepspeed.zero.GatheredParameters(model.parameters()):
        saved = {name: param.detach().clone() for name, param in model.named_parameters()}
    train(engine, 2)
    with deepspeed.zero.GatheredParameters(model.parameters()):
        loaded = deepspeed.utils.zero_to_fp32.load_state_dict_from_zero_checkpoint(model, folder[0])
        assert all(torch.equal(param, saved[name]) for name, param in loaded.named_parameters())
    with deepspeed.zero.GatheredParameters(model.parameters()):
        assert all(torch.equal(param, saved[name]) for name, param in model.named_parameters())


@probe
def an_exception_in_gathered_parameters_keeps_its_type():
    model = make_net()
    engine = make_engine(model=model)
    try:
        with deepspeed.zero.GatheredParameters(model.parameters(), modifier_rank=0):
            raise KeyError("mine")
    except KeyError:
        pass
    train(engine, 2)


@probe
def a_write_without_a_modifier_rank_is_seen_until_the_end():
    """As TRL merges adapters for its sampler, and as averages of weights are written that nobody keeps."""
    model = make_net()
    engine = make_engine(model=model)
    weight, tokens = model.inner.weight, batch()[0]
    expected = {name: value.clone() for name, value in make_net().state_dict().items()}
    for write, value in ((write_by_fill, 2.0), (write_by_init, 3.0), (write_by_data, 5.0)):
        changed = make_net()
        write(changed.inner.weight)
        with deepspeed.zero.GatheredParameters(list(model.parameters())):
            write(weight)
            with deepspeed.zero.GatheredParameters([weight]):
                assert torch.equal(weight, torch.full((24, 24), value)), write.__name__
            with torch.no_grad():
                assert torch.allclose(engine.module(tokens), changed(tokens), atol=1e-6), write.__name__
        with deepspeed.zero.GatheredParameters(list(model.parameters())):
            assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
    expect_close(train(engine), train_plain(make_net()))


@probe
def modules_of_zero_init_are_copied_whole():
    """As PEFT copies the modules that it trains beside the adapters."""
    with deepspeed.zero.Init(config_dict_or_path=config_of()):
        model = make_net()
    expected = [param.clone() for param in make_net().parameters()]
    early = copy.deepcopy(model)
    assert all(param.ds_status.name == "NOT_AVAILABLE" for param in model.parameters())
    engine = make_engine(model=model)
    with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0):
        inside = copy.deepcopy(model)
    for copied in (early, inside):
        assert copied.outer.weight is copied.embed.weight
        assert all(torch.equal(param, value) for param, value in zip(copied.parameters(), expected))
        assert all(type(param) is nn.Parameter and not hasattr(param, "ds_id") for param in copied.parameters())
        expect_close(train_plain(copied), train_plain(make_net()))
    expect_close(train(engine), train_plain(make_net()))


@probe
def a_parametrized_weight_trains():
    """As PEFT adds its adapters to a bare parameter, around each forward."""

    class Doubled(nn.Module):
        def forward(self, weight):
            return weight * 2

    def around_each_forward(model):
        def forward(x):
            nn.utils.parametrize.register_parametrization(model.inner, "weight", Doubled())
            try:
                return nn.functional.linear(x, model.inner.weight, model.inner.bias)
            finally:
                nn.utils.parametrize.remove_parametrizations(model.inner, "weight", leave_parametrized=False)

        model.inner.forward = forward
        return model

    expect_close(train(make_engine(model=around_each_forward(make_net()))), train_plain(around_each_forward(make_net())))


@probe
def hooks_are_taken_off_and_put_back_around_generation():
    """As TRL does it in its unwrap_model_for_generation()."""
    expected = train(make_engine(model=make_net()))
    engine = make_engine(model=make_net())
    tokens, _ = batch()
    with torch.no_grad():
        before = engine(tokens).clone()
    offload = engine.optimizer.parameter_offload
    num_hooks = len(offload.forward_hooks)
    with deepspeed.zero.GatheredParameters(engine.parameters()):
        for part in offload.module.modules():
            for _, param in [*part.named_parameters(recurse=False), *part.ds_external_parameters()]:
                param.ds_active_sub_modules.clear()
        for hook in offload.forward_hooks + offload.backward_hooks:
            hook.remove()
        offload.forward_hooks, offload.backward_hooks = [], []
        with torch.no_grad():
            assert torch.equal(engine.module(tokens), before)
    offload._register_deepspeed_module(offload.module)
    assert len(offload.forward_hooks) == num_hooks > 0
    expect_close(train(engine), expected)


if __name__ == "__main__":
    main()
