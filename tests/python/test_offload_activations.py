"""The inputs of checkpointed layers on the host. A CPU has no other memory: here its accelerator pretends to be a device."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from deepspeed.accelerator import get_accelerator
from deepspeed.runtime.activation_checkpointing.offload_activations import (
    CheckpointHiddenStatesOffload,
    get_checkpoint_hidden_states_offloading_ctx_manager,
)


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(get_accelerator(), "is_synchronized_device", lambda: False)
    monkeypatch.setattr(get_accelerator(), "on_accelerator", lambda tensor: True)


def layers():
    torch.manual_seed(0)
    return torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(4)])


def forward(parts, inputs, offload=None):
    for part in parts:
        if offload is not None:
            offload.mark(inputs)
        inputs = checkpoint(lambda x, part=part: torch.tanh(part(x)), inputs, use_reentrant=False)
    return inputs.square().sum()


def gradients(parts):
    return [param.grad.clone() for param in parts.parameters()]


def inputs_of(seed=1):
    return torch.randn(3, 8, generator=torch.Generator().manual_seed(seed)).requires_grad_()


@pytest.mark.parametrize("kept", [0, 1, 4])
def test_keeps_gradients_and_offloads_all_but_the_latest(device, kept):
    expected = layers()
    forward(expected, inputs_of()).backward()
    parts = layers()
    with get_checkpoint_hidden_states_offloading_ctx_manager(min_offload_bytes=0, keep_last_count=kept) as offload:
        forward(parts, inputs_of(), offload).backward()
    assert all(torch.equal(a, b) for a, b in zip(gradients(parts), gradients(expected)))
    stats = offload.stats
    assert (stats.marked_tensors, stats.offloaded_tensors, stats.restored_tensors) == (4, 4 - kept, 4 - kept)
    assert stats.kept_last_tensors == kept and stats.offloaded_bytes == stats.restored_bytes == (4 - kept) * 3 * 8 * 4


def test_reads_back_what_is_on_the_host(device):
    class Doubled(torch.nn.Module):
        def forward(self, x):
            return x * x

    offload = CheckpointHiddenStatesOffload(min_offload_bytes=0, keep_last_count=0)
    taken = []
    take = offload._buffers.take
    offload._buffers.take = lambda tensor: taken.append(take(tensor)) or taken[-1]
    inputs = inputs_of()
    with offload:
        loss = forward([Doubled()], inputs, offload)
        taken[0].fill_(0.0)
        loss.backward()
    assert inputs.grad.abs().sum() == 0


def test_reuses_copies_in_a_second_backward_and_a_second_step(device):
    parts, offload = layers(), CheckpointHiddenStatesOffload(min_offload_bytes=0, keep_last_count=0)
    for _ in range(2):
        with offload:
            loss = forward(parts, inputs_of(), offload)
            parts.zero_grad()
            loss.backward(retain_graph=True)
            once = gradients(parts)
            parts.zero_grad()
            loss.backward()
        assert all(torch.equal(a, b) for a, b in zip(gradients(parts), once))
        assert offload.stats.restored_tensors == offload.stats.offloaded_tensors == 4
        assert len(offload._buffers) == 4


def test_leaves_small_expanded_and_unmarked_tensors(device):
    offload = CheckpointHiddenStatesOffload(min_offload_bytes=3 * 8 * 4 + 1, keep_last_count=0)
    with offload:
        forward(layers(), inputs_of(), offload).backward()
    assert offload.stats.skipped_marked_tensors == 4 and offload.stats.offloaded_tensors == 0
    wide = CheckpointHiddenStatesOffload(min_offload_bytes=0, keep_last_count=0)
    with wide:
        forward(layers()[:1], torch.ones(8).expand(3, 8).requires_grad_(), wide).backward()
        forward(layers(), inputs_of()).backward()
    assert wide.stats.skipped_marked_tensors == 1 and wide.stats.offloaded_tensors == 0


def test_refuses_a_backward_after_the_scope(device):
    offload = CheckpointHiddenStatesOffload(min_offload_bytes=0, keep_last_count=0)
    with offload:
        loss = forward(layers(), inputs_of(), offload)
    with pytest.raises(RuntimeError, match="run backward inside of the scope"):
        loss.backward()


def test_keeps_everything_on_a_cpu():
    offload = CheckpointHiddenStatesOffload(min_offload_bytes=0, keep_last_count=0)
    with offload, pytest.raises(RuntimeError, match="not re-entrant"):
        offload.__enter__()
    with offload:
        forward(layers(), inputs_of(), offload).backward()
    assert offload.stats.skipped_marked_tensors == 4
    with pytest.raises(ValueError, match="max_fwd_stash_count must be >= 0, got -1"):
        CheckpointHiddenStatesOffload(max_fwd_stash_count=-1)
