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
def test_steps_adam_as_torch(kind):
    found, optimizer = train(lambda params: kind(params, lr=0.01, weight_decay=0.1))
    expected, peer = train(lambda params: torch.optim.AdamW(params, lr=0.01, weight_decay=0.1))
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(optimizer.state[a]["exp_avg"], peer.state[b]["exp_avg"], rtol=1e-5, atol=1e-6)
        assert optimizer.state[a]["step"] == 5


def test_steps_adam_without_decoupled_decay_as_torch():
    found, _ = train(lambda params: DeepSpeedCPUAdam(params, lr=0.01, weight_decay=0.1, adamw_mode=False))
    expected, _ = train(lambda params: torch.optim.Adam(params, lr=0.01, weight_decay=0.1))
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [DeepSpeedCPULion, FusedLion, FusedLamb, DeepSpeedCPUAdagrad])
def test_steps_others_and_resumes_their_state(kind):
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
def test_updates_16_bits_in_fp32_and_rounds(dtype):
    found, _ = train(lambda params: DeepSpeedCPUAdam(params, lr=0.01), dtype=dtype)
    expected, _ = train(lambda params: torch.optim.AdamW(params, lr=0.01, weight_decay=0.0))
    for a, b in zip(found, expected):
        assert a.dtype == dtype
        torch.testing.assert_close(a.float(), b, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("decouples", [True, False])
def test_undoes_a_subgroups_step(decouples):
    param = torch.nn.Parameter(torch.linspace(-1, 1, 64))
    optimizer = DeepSpeedCPUAdam([param], lr=0.1, weight_decay=0.1, adamw_mode=decouples)
    before = []
    for number in range(3):
        before.append(param.detach().clone())
        param.grad = torch.full((64,), 0.5 + number)
        optimizer.step_subgroup(7)
    assert optimizer.state[7]["step"] == 3
    kept = {name: optimizer.state[7][name].clone() for name in ("exp_avg", "exp_avg_sq")}
    stepped = param.detach().clone()
    optimizer.rollback_subgroup(7)
    torch.testing.assert_close(param.detach(), before[2])
    optimizer.step_subgroup(7)
    torch.testing.assert_close(param.detach(), stepped)
    torch.testing.assert_close(optimizer.state[7]["exp_avg"].view(-1), kept["exp_avg"].view(-1))
    with pytest.raises(RuntimeError, match="sub_group_id 8"):
        optimizer.rollback_subgroup(8)


def test_takes_sparse_gradients_only_if_they_make_sense():
    def stepped(kind, **options):
        torch.manual_seed(1)
        embedding = torch.nn.Embedding(6, 3, sparse=True)
        optimizer = kind(embedding.parameters(), lr=0.1, **options)
        for tokens in ([1, 2], [2, 5]):
            optimizer.zero_grad()
            embedding(torch.tensor(tokens)).square().sum().backward()
            optimizer.step()
        return embedding.weight.detach()

    torch.testing.assert_close(stepped(DeepSpeedCPUAdagrad), stepped(torch.optim.Adagrad))
    with pytest.raises(RuntimeError, match="sparse gradients"):
        stepped(DeepSpeedCPUAdam)


def test_returns_lambs_trust_ratios():
    begin, unused = train(lambda params: FusedLamb(params, lr=0.01, weight_decay=0.1), steps=0)
    assert unused.get_lamb_coeffs() == []
    _, optimizer = train(lambda params: FusedLamb(params, lr=0.01, weight_decay=0.1), steps=1)
    expected = []
    for param in begin:
        grad = torch.randn(param.shape, generator=torch.Generator().manual_seed(param.dim()))
        change = 0.1 * grad / (0.001**0.5 * grad.abs() + 1e-8) + 0.1 * param.detach()
        expected.append((param.detach().norm() / change.norm()).clamp(0.01, 10).item())
    assert optimizer.get_lamb_coeffs() == pytest.approx(expected, rel=1e-5)
