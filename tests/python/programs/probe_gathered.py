"""Probes of zero.GatheredParameters: what is written, taken and saved inside of it, and outside."""

import copy
import io
import tempfile

import torch
import torch.nn as nn

import deepspeed
from probes import main, probe
from small_net import average_gradients, batch, expect_close, make_engine, make_net, train, train_plain


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
    try:
        torch.save(state, io.BytesIO())
    except RuntimeError as error:
        assert "'embed.weight'" in str(error) and "partitioned" in str(error), error
    else:
        raise AssertionError("a partitioned parameter was saved")
    expect_close(train(engine), train_plain(make_net()))


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
def a_write_without_a_modifier_rank_is_refused_and_named():
    model = make_net()
    make_engine(model=model)
    weight = model.inner.weight
    with deepspeed.zero.GatheredParameters([weight]):
        before = weight.detach().clone()
        for write in (lambda: weight.data.copy_(before + 1), lambda: write_by_fill(weight)):
            try:
                write()
                raise AssertionError("it was written")
            except RuntimeError as error:
                assert "without a modifier_rank" in str(error)
        assert torch.equal(weight, before)


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
