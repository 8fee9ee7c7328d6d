"""deepspeed.checkpointing: gradients of recomputed regions are those of a plain run, and the core keeps their inputs as configured."""

import json

import pytest
import torch
import torch.nn as nn

from deepspeed import checkpointing

WIDTH = 16


@pytest.fixture(autouse=True)
def as_by_default():
    yield
    checkpointing.configure(None)
    checkpointing.get_cuda_rng_tracker().reset()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden, scale=1.0, mask=None):
        inner = nn.functional.dropout(self.down(torch.tanh(self.up(hidden))), 0.3)
        return hidden + scale * inner if mask is None else hidden + scale * inner * mask


def gradients(call):
    torch.manual_seed(0)
    blocks = [Block() for _ in range(3)]
    hidden = torch.randn(4, WIDTH, requires_grad=True)
    torch.manual_seed(1)
    value = hidden
    for block in blocks:
        value = call(block, value)
    value.square().sum().backward()
    return [hidden.grad, *(param.grad for block in blocks for param in block.parameters())]


def plain(block, value):
    return block(value)


def assert_equal(found, expected):
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_gives_gradients_the_bits_of_a_plain_run():
    expected = gradients(plain)
    assert_equal(gradients(checkpointing.checkpoint), expected)
    assert_equal(gradients(checkpointing.non_reentrant_checkpoint), expected)
    assert_equal(gradients(lambda block, value: checkpointing.CheckpointFunction.apply(block, [], value)), expected)
    assert_equal(gradients(lambda block, value: checkpointing.checkpoint(plain, block, value)), expected)


def test_calls_the_function_again_in_backward():
    calls = []

    def function(x):
        calls.append(torch.is_grad_enabled())
        return x.exp()

    x = torch.ones(3, requires_grad=True)
    checkpointing.checkpoint(function, x).sum().backward()
    assert calls == [True, True]
    with torch.no_grad():
        checkpointing.checkpoint(function, x)
    assert len(calls) == 3


def test_accepts_any_arguments_and_results():
    def function(pair, table, flag, *, factor):
        a, b = pair
        return [a * table["c"] * factor, "text", None, {"sum": a + b}] if flag else None

    a, b, c = (torch.full((2,), value, requires_grad=True) for value in (1.0, 2.0, 3.0))
    product, text, nothing, table = checkpointing.checkpoint(function, (a, b), {"c": c}, True, factor=2.0)
    assert (text, nothing) == ("text", None)
    (product.sum() + table["sum"].sum()).backward()
    assert a.grad.tolist() == [7.0, 7.0] and b.grad.tolist() == [1.0, 1.0] and c.grad.tolist() == [2.0, 2.0]


def test_repeats_autocast_and_the_trackers_streams():
    tracker = checkpointing.get_cuda_rng_tracker()

    def run(call):
        tracker.reset()
        tracker.add("model-parallel-rng", 7)

        def function(block, value):
            with tracker.fork():
                mask = torch.rand(WIDTH)
            return block(value, 2.0, mask)

        with torch.autocast("cpu", torch.bfloat16):
            return gradients(lambda block, value: call(function, block, value))

    assert_equal(run(checkpointing.checkpoint), run(lambda function, *args: function(*args)))


def test_raises_the_functions_errors():
    def function(x):
        if checkpointing_calls.append(1) or len(checkpointing_calls) == 2:
            raise KeyError("second")
        return x.exp()

    checkpointing_calls = []
    x = torch.ones(3, requires_grad=True)
    loss = checkpointing.checkpoint(function, x).sum()
    with pytest.raises(KeyError, match="second") as raised:
        loss.backward()
    if hasattr(raised.value, "__notes__"):
        assert raised.value.__notes__ == ["This was in the recomputation of checkpoint() of function."]
    with pytest.raises(ZeroDivisionError):
        checkpointing.checkpoint(lambda x: x / (1 // 0), x)


def test_refuses_a_function_that_computes_something_else():
    calls = []

    def function(x):
        calls.append(1)
        return x.exp() if len(calls) == 1 else x * 2

    loss = checkpointing.checkpoint(function, torch.ones(3, requires_grad=True)).sum()
    with pytest.raises(RuntimeError, match="recomputation of checkpoint.. of function saved 0 of the 1"):
        loss.backward()


def test_works_with_torchs_own_checkpoint_inside():
    def inside(block, value):
        return torch.utils.checkpoint.checkpoint(block, value, use_reentrant=False)

    assert_equal(gradients(lambda block, value: checkpointing.checkpoint(inside, block, value)), gradients(plain))


def test_refuses_options_that_contradict_each_other():
    with pytest.raises(AssertionError, match="partition_activations"):
        checkpointing.configure(None, contiguous_checkpointing=True)
    with pytest.raises(AssertionError, match="number_checkpoints"):
        checkpointing.configure(None, partition_activations=True, contiguous_checkpointing=True)


@pytest.mark.parametrize(
    "options",
    [
        {"partition_activations": True},
        {"partition_activations": True, "contiguous_checkpointing": True, "num_checkpoints": 3},
        {"checkpoint_in_cpu": True},
        {"partition_activations": True, "checkpoint_in_cpu": True},
        {"synchronize": True, "profile": True},
    ],
)
def test_gives_the_plain_bits_in_each_way_to_keep_inputs(options):
    expected = gradients(plain)
    checkpointing.configure(None, **options)
    assert checkpointing.is_configured()
    for _ in range(2):
        assert_equal(gradients(checkpointing.checkpoint), expected)
        assert_equal(gradients(lambda block, value: checkpointing.CheckpointFunction.apply(block, [], value)), expected)


def test_takes_from_the_configs_section_what_arguments_do_not_set(tmp_path):
    section = {"partition_activations": True, "contiguous_memory_optimization": True, "number_checkpoints": 2, "cpu_checkpointing": True}
    config = {"train_batch_size": 1, "activation_checkpointing": {**section, "synchronize_checkpoint_boundary": True, "profile": True}}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    names = ("PARTITION_ACTIVATIONS", "CONTIGUOUS_CHECKPOINTING", "num_layers", "CPU_CHECKPOINT", "SYNCHRONIZE", "PROFILE_TIME")
    for given in (config, str(file)):
        checkpointing.configure(None, deepspeed_config=given)
        assert [getattr(checkpointing, name) for name in names] == [True, True, 2, True, True, True]
        checkpointing.configure(None, deepspeed_config=given, num_checkpoints=5, checkpoint_in_cpu=False, profile=False)
        assert [getattr(checkpointing, name) for name in names] == [True, True, 5, False, True, False]
        checkpointing.configure(None)
        assert [getattr(checkpointing, name) for name in names] == [False, False, None, False, False, False]


def test_has_room_in_contiguous_buffers_for_the_stated_regions():
    checkpointing.configure(None, partition_activations=True, contiguous_checkpointing=True, num_checkpoints=2)
    x = torch.ones(3, requires_grad=True)

    def regions(count, value):
        for _ in range(count):
            value = checkpointing.checkpoint(torch.exp, value)
        return value

    with pytest.raises(RuntimeError, match="num_checkpoints"):
        regions(3, x)
    checkpointing.reset()
    regions(2, x).sum().backward()
    checkpointing.set_num_layers(3)
    regions(3, x * 0.1).sum().backward()


def test_seeds_model_parallel_ranks_with_deepspeeds_offsets():
    checkpointing.model_parallel_cuda_manual_seed(100)
    with checkpointing.get_cuda_rng_tracker().fork():
        forked = torch.rand(4)
    assert torch.equal(torch.rand(4), torch.rand(4, generator=torch.Generator().manual_seed(100)))
    assert torch.equal(forked, torch.rand(4, generator=torch.Generator().manual_seed(100 + 2718)))
    checkpointing.model_parallel_reconfigure_tp_seed(200)
    with checkpointing.get_cuda_rng_tracker().fork():
        assert torch.equal(torch.rand(4), torch.rand(4, generator=torch.Generator().manual_seed(200 + 2718)))


def test_warns_once_of_a_reentrant_region_without_gradients(caplog):
    blocks = [nn.Linear(3, 3) for _ in range(4)]
    for _ in range(6):
        for block in blocks:
            checkpointing.CheckpointFunction.apply(block.forward, [], torch.ones(2, 3))
        checkpointing.CheckpointFunction.apply(lambda x: x + 1, [], torch.ones(2, 3))
    assert sum("no input of it needs a gradient" in message for message in caplog.messages) == 5
