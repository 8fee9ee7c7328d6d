"""The optimizer classes of deepspeed.ops without an engine, against torch's."""
import copy

import pytest
import torch

from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
from deepspeed.ops.lamb import FusedLamb
from deepspeed.ops.lion import DeepSpeedCPULion, FusedLion


def train(make, steps=5, dtype=torch.float32):
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(7, 3).to(dtype)), torch.nn.Parameter(torch.randn(5).to(dtype))]
    optimizer = make(params)
    for step in range(steps):
        for param in params:
            generator = torch.Generator().manual_seed(step + param.dim())
            param.grad = torch.randn(param.shape, generator=generator).to(dtype)
        optimizer.step()
    return params, optimizer


@pytest.mark.parametrize("kind", [DeepSpeedCPUAdam, FusedAdam])
def test_adam_is_torchs(kind):
    found, optimizer = train(lambda params: kind(params, lr=0.01, weight_decay=0.1))
    expected, peer = train(lambda params: torch.optim.AdamW(params, lr=0.01, weight_decay=0.1))
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(optimizer.state[a]["exp_avg"], peer.state[b]["exp_avg"], rtol=1e-5, atol=1e-6)
        assert optimizer.state[a]["step"] == 5


def test_adam_without_decoupled_decay_is_torchs():
    found, _ = train(lambda params: DeepSpeedCPUAdam(params, lr=0.01, weight_decay=0.1, adamw_mode=False))
    expected, _ = train(lambda params: torch.optim.Adam(params, lr=0.01, weight_decay=0.1))
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [DeepSpeedCPULion, FusedLion, FusedLamb, DeepSpeedCPUAdagrad])
def test_others_step_and_go_on_from_their_state(kind):
    whole, optimizer = train(lambda params: kind(params, lr=0.01))
    begin, _ = train(lambda params: kind(params, lr=0.01), steps=0)
    assert all(not torch.equal(a, b) for a, b in zip(whole, begin))
    params = [torch.nn.Parameter(param.detach().clone()) for param in whole]
    resumed = kind(params, lr=0.01)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for one, other in zip(whole, params):
        one.grad = other.grad = torch.ones_like(one)
    optimizer.step()
    resumed.step()
    for one, other in zip(whole, params):
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_are_updated_in_fp32_and_rounded(dtype):
    found, _ = train(lambda params: DeepSpeedCPUAdam(params, lr=0.01), dtype=dtype)
    expected, _ = train(lambda params: torch.optim.AdamW(params, lr=0.01, weight_decay=0.0))
    for a, b in zip(found, expected):
        assert a.dtype == dtype
        torch.testing.assert_close(a.float(), b, rtol=2e-2, atol=2e-2)
