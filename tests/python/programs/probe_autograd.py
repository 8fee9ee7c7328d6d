"""Probes of what scripts do around forward and backward at stage 3: hooks, transforms, threads, failures."""

import threading

import torch
import torch.nn as nn
import torch.nn.functional as F

import deepspeed
from probes import main, probe
from small_net import average_gradients, batch, expect_close, make_engine, make_net, step_of, train, train_plain


@probe
def calls_past_the_engine_see_whole_weights():
    model, plain = make_net(), make_net()
    engine = make_engine(model=model)
    tokens, _ = batch()
    expected = plain(tokens)
    for scope in (torch.no_grad, torch.inference_mode):
        with scope():
            for called in (engine, model):
                found = called(tokens)
                assert torch.allclose(found, expected, atol=1e-6) and not found.requires_grad
                assert found.is_inference() == (scope is torch.inference_mode)
            assert torch.allclose(model.inner(torch.ones(2, 24)), plain.inner(torch.ones(2, 24)), atol=1e-6)
    expect_close(train(engine), train_plain(plain))


class Projection(torch.autograd.Function):
    """Keeps a weight for backward, where it asks what a partitioned parameter knows of itself."""

    @staticmethod
    def forward(ctx, x, weight, seen):
        ctx.save_for_backward(x, weight)
        ctx.seen = seen
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        ctx.seen.append(weight)
        status = getattr(weight, "ds_status", None)
        with deepspeed.zero.GatheredParameters([weight], enabled=status is not None and status.name == "NOT_AVAILABLE"):
            return grad @ weight, grad.flatten(0, -2).t() @ x.flatten(0, -2), None


@probe
def a_saved_parameter_is_itself_in_every_step():
    def call(model, x, seen):
        return Projection.apply(x, model.inner.weight, seen) + model.inner.bias

    def in_a_region(model, x, seen):
        return deepspeed.checkpointing.non_reentrant_checkpoint(lambda h: call(model, h, seen), x)

    expected = train_plain(make_net())
    for stage, frozen, way in ((0, False, call), (2, False, in_a_region), (3, False, call), (3, False, in_a_region), (3, True, call)):
        model, plain, seen = make_net(), make_net(), []
        for one in (model, plain):
            one.inner.weight.requires_grad_(not frozen)
        weight = model.inner.weight
        model.inner.forward = lambda x, model=model, seen=seen, way=way: way(model, x, seen)
        losses = train(make_engine(stage, model))
        assert len(seen) == 3 and all(one is weight for one in seen), (stage, frozen, way.__name__, [type(one) for one in seen])
        expect_close(losses, expected if not frozen else losses)


@probe
def checkpointed_segments_train():
    from torch.utils.checkpoint import checkpoint

    expected = train_plain(make_net())
    for use_reentrant in (False, True):
        model, calls = make_net(), []
        plain = model.inner.forward

        def segment(x, plain=plain, calls=calls):
            calls.append(1)
            return plain(x)

        model.inner.forward = lambda x, segment=segment, kind=use_reentrant: checkpoint(segment, x, use_reentrant=kind)
        expect_close(train(make_engine(model=model)), expected)
        assert len(calls) == 6, "each segment runs again in backward"


@probe
def hooks_of_modules_run_and_change_what_flows():
    def add_hooks(model, seen):
        inner = model.inner
        inner.register_forward_pre_hook(lambda _, inputs: seen.append("before forward") or (inputs[0] * 1.5,))
        inner.register_forward_hook(lambda _, inputs, output: seen.append("forward") or output + inputs[0])
        inner.register_full_backward_pre_hook(lambda _, grads: seen.append("before backward") or (grads[0] * 2,))
        inner.register_full_backward_hook(lambda _, inputs, outputs: seen.append("backward") or (inputs[0] + outputs[0],))
        return model

    seen, others = [], []
    found = train(make_engine(model=add_hooks(make_net(), seen)))
    expected = train_plain(add_hooks(make_net(), others))
    expect_close(found, expected)
    assert seen == others == ["before forward", "forward", "before backward", "backward"] * 3, seen
    assert abs(expected[-1] - train_plain(make_net())[-1]) > 1e-3, "the hooks changed nothing"


@probe
def hooks_of_parameters_get_whole_gradients_and_may_change_them():
    def add_hook(model, seen):
        model.inner.weight.register_hook(lambda grad: seen.append(grad.clone()) or grad * torch.linspace(0, 3, 24))
        return model

    for stage in (1, 2, 3):
        seen, others = [], []
        expect_close(train(make_engine(stage, add_hook(make_net(), seen))), train_plain(add_hook(make_net(), others)))
        assert len(seen) == len(others) == 3
        for found, expected in zip(seen, others):
            assert torch.allclose(found, expected, atol=1e-6) and expected.abs().sum() > 0


@probe
def hooks_after_the_accumulation_run_once_a_backward():
    for stage in (1, 2, 3):
        model, seen = make_net(), []
        for param in model.parameters():
            param.register_post_accumulate_grad_hook(lambda held: seen.append(held))
        expect_close(train(make_engine(stage, model)), train_plain(make_net()))
        for param in model.parameters():
            assert sum(held is param for held in seen) == 3, (stage, len(seen))


@probe
def an_exception_in_forward_keeps_its_type():
    model = make_net()
    engine = make_engine(model=model)

    def fail(*_):
        raise LookupError("mine")

    handle = model.inner.register_forward_hook(fail)
    try:
        engine(batch()[0])
    except LookupError as error:
        assert "mine" in str(error)
    else:
        raise AssertionError("nothing was raised")
    handle.remove()
    expect_close(train(engine), train_plain(make_net()))


@probe
def an_interrupt_in_forward_leaves_nothing_open():
    model = make_net()
    engine = make_engine(model=model)
    inner, interrupts = model.inner.forward, [True]

    def interrupted(x):
        if interrupts.pop():
            raise KeyboardInterrupt
        return inner(x)

    model.inner.forward = interrupted
    try:
        engine(batch()[0])
    except KeyboardInterrupt:
        pass
    model.inner.forward = inner
    assert model.inner.weight.ds_status.name == "NOT_AVAILABLE"
    expect_close(train(engine), train_plain(make_net()))


@probe
def modules_run_on_several_threads():
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)])
    engine = make_engine(model=model)
    expected = [part(torch.ones(1, 8)) for part in model]
    found = [None] * 4
    lock = threading.Lock()  # ranks gather in one order

    def run(index):
        with lock:
            found[index] = model[index](torch.ones(1, 8))

    for index in range(4):
        thread = threading.Thread(target=run, args=(index,))
        thread.start()
        thread.join()
    assert all(torch.equal(a, b) for a, b in zip(found, expected)) and engine is not None


@probe
def values_and_gradients_of_safe_access():
    model = make_net()
    engine = make_engine(model=model)
    tokens, targets = batch()
    engine.backward(F.cross_entropy(engine(tokens), targets))
    gradient = deepspeed.utils.safe_get_full_grad(model.inner.weight)
    assert gradient.shape == model.inner.weight.shape and gradient.abs().sum() > 0
    engine.step()
    assert deepspeed.utils.safe_get_full_fp32_param(model.inner.weight).shape == (24, 24)
    assert deepspeed.utils.safe_get_full_optimizer_state(model.inner.weight, "exp_avg").abs().sum() > 0


@probe
def gradients_of_a_direct_backward_are_shown_and_changed_at_once():
    for stage in (1, 2, 3):
        engine, twin = make_engine(stage), make_engine(stage)
        tokens, targets = batch()
        twin.backward(F.cross_entropy(twin(tokens), targets))
        F.cross_entropy(engine(tokens), targets).backward()
        found, expected = (deepspeed.utils.safe_get_full_grad(one.module.inner.weight) for one in (engine, twin))
        assert torch.allclose(found, expected) and found.abs().sum() > 0
        for one in (engine, twin):
            deepspeed.utils.safe_set_full_grad(one.module.inner.weight, 2 * expected)
            one.step()
        after, wanted = (deepspeed.utils.safe_get_full_fp32_param(one.module.inner.weight) for one in (engine, twin))
        assert torch.allclose(after, wanted), stage


@probe
def training_runs_on_another_thread():
    engine = make_engine()
    losses = []
    thread = threading.Thread(target=lambda: losses.extend(train(engine)))
    thread.start()
    thread.join()
    assert losses == train(make_engine())
    expect_close(losses, train_plain(make_net()))


@probe
def two_engines_share_a_loss():
    def losses_of(first, second, backward, step):
        losses = []
        for number in range(3):
            tokens, targets = batch(number)
            loss = F.cross_entropy(first(tokens) + second(tokens), targets)
            backward(loss)
            step()
            losses.append(loss.item())
        return losses

    models = make_net(), make_net(1)
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0) for model in models]

    def step_plain():
        for model, optimizer in zip(models, optimizers):
            average_gradients(model)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    expected = losses_of(*models, torch.Tensor.backward, step_plain)
    for stage in (1, 2, 3):
        first, second = make_engine(stage), make_engine(stage, make_net(1))
        expect_close(losses_of(first, second, torch.Tensor.backward, lambda: (first.step(), second.step())), expected)
        assert first.global_steps == second.global_steps == 3


@probe
def scripts_may_reduce_beside_the_engine():
    """The test runs it with checks of torch that end a job whose ranks call a group's collectives in different orders."""
    expected = train_plain(make_net(), 4)
    for stage in (1, 2, 3):
        model, sums = make_net(), []
        engine = make_engine(stage, model, zero_optimization=dict(stage=stage, overlap_comm=True, reduce_bucket_size=100))

        def reduce_own(_):
            value = torch.ones(1)
            deepspeed.comm.all_reduce(value)
            sums.append(value.item())

        for param in model.parameters():
            param.register_hook(reduce_own)
        expect_close(train(engine, 4), expected)
        assert sums == [float(deepspeed.comm.get_world_size())] * len(sums) and len(sums) >= 12


@probe
def functions_are_called_with_weights_of_the_script():
    model, plain = make_net(), make_net()
    engine = make_engine(model=model)
    tokens, _ = batch()
    for others in (dict(make_net(1).named_parameters()), {"inner.weight": torch.full((24, 24), 0.1)}):
        found = torch.func.functional_call(model, others, (tokens,))
        assert torch.allclose(found, torch.func.functional_call(plain, others, (tokens,)), atol=1e-6)
        assert not torch.allclose(found, model(tokens), atol=1e-3)
    expect_close(train(engine), train_plain(plain))


@probe
def functions_are_differentiated_by_torch_func():
    model, plain = make_net(), make_net()
    engine = make_engine(model=model)
    tokens, targets = batch()
    weights = {name: param.detach().clone() for name, param in plain.named_parameters()}

    def loss_of(called):
        return lambda given: F.cross_entropy(torch.func.functional_call(called, given, (tokens,)), targets)

    found, expected = (torch.func.grad(loss_of(called))(weights) for called in (model, plain))
    assert all(torch.allclose(found[name], expected[name], atol=1e-6) for name in weights)
    part = {"inner.bias": weights["inner.bias"]}  # the others are the engine's own
    found, expected = (torch.func.grad(loss_of(called))(part)["inner.bias"] for called in (model, plain))
    assert torch.allclose(found, expected, atol=1e-6) and expected.abs().sum() > 0
    samples = torch.randn(5, 24, generator=torch.Generator().manual_seed(2))
    found, expected = (
        torch.func.vmap(torch.func.grad(lambda one, called=called: torch.tanh(called(one)).sum()))(samples)
        for called in (model.inner, plain.inner)
    )
    assert torch.allclose(found, expected, atol=1e-6)
    assert model.inner.weight.ds_status.name == "NOT_AVAILABLE"
    expect_close(train(engine), train_plain(plain))


@probe
def autocast_of_the_script_gives_the_losses_of_torch():
    class Cast(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.dtypes = make_net(), set()
            self.net.inner.register_forward_hook(lambda *given: self.dtypes.add(given[-1].dtype))

        def forward(self, tokens):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.net(tokens).float()

    expected = train_plain(Cast())
    assert abs(expected[0] - train_plain(make_net())[0]) > 1e-7, "bf16 rounds nothing here"
    for stage in (1, 2, 3):
        model = Cast()
        expect_close(train(make_engine(stage, model)), expected, 2e-3)
        assert model.dtypes == {torch.bfloat16}


@probe
def autocast_around_the_engine_gives_the_losses_of_autocast_within():
    def losses_of(engine):
        losses = []
        for number in range(3):
            tokens, targets = batch(number)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(engine(tokens), targets)
            assert loss.dtype == torch.float32
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        return losses

    expected = losses_of(make_engine(1))
    for stage in (2, 3):
        expect_close(losses_of(make_engine(stage)), expected, 1e-6)


@probe
def an_exception_in_a_backward_function_keeps_its_type():
    class Fails(Exception):
        """Is a class that torch does not know."""

    class Failing(torch.autograd.Function):
        fails = False

        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            if Failing.fails:
                raise Fails("mine", 7)
            return grad

    for stage in (1, 2, 3):
        model = make_net()
        model.inner.register_forward_hook(lambda _, inputs, output: Failing.apply(output))
        engine = make_engine(stage, model)
        Failing.fails = True
        try:
            step_of(engine)
        except Fails as error:
            assert error.args == ("mine", 7)
        else:
            raise AssertionError("nothing was raised")
        Failing.fails = False
        expect_close(train(engine), train_plain(make_net()))


if __name__ == "__main__":
    main()
