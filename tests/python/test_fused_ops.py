"""deepspeed.ops: the fused operators from Python, against torch's own."""

import pytest
import torch
import torch.nn.functional as F

import deepspeed.ops as ops


def learned(*sizes, dtype=torch.float64):
    return torch.randn(*sizes, dtype=dtype, requires_grad=True)


def test_computes_what_torchs_operators_do():
    torch.manual_seed(0)
    x, r, w, b = learned(3, 8, dtype=torch.float32), torch.randn(3, 8), torch.rand(8), torch.randn(8)
    close = torch.testing.assert_close
    close(ops.layer_norm(x, w, b), F.layer_norm(x, (8,), w, b))
    normed, total = ops.add_layer_norm(x, r, w, b)
    close(total, x + r)
    close(normed, F.layer_norm(x + r, (8,), w, b))
    close(ops.rms_norm(x, w), F.rms_norm(x, (8,), w, 1e-6))
    close(ops.add_rms_norm(x, r, w)[0], F.rms_norm(x + r, (8,), w, 1e-6))
    close(ops.bias_gelu(x, b), F.gelu(x + b, approximate="tanh"))
    close(ops.swiglu(x, r), F.silu(x) * r)
    close(ops.swiglu(x), F.silu(x[:, :4]) * x[:, 4:])
    close(ops.masked_softmax(x, b, 0.5), torch.softmax(0.5 * x + b, -1))
    close(ops.bias_dropout_residual(x, b, r, 0.3, training=False), x + b + r)
    indices = torch.tensor([[1, 0], [2, 1]])
    close(ops.embedding(x, indices), F.embedding(indices, x))
    targets = torch.tensor([1, -100, 0])
    close(ops.linear_cross_entropy(x, r, targets, label_smoothing=0.1), F.cross_entropy(x @ r.T, targets, label_smoothing=0.1))


def test_passes_gradcheck():
    torch.manual_seed(1)
    check = torch.autograd.gradcheck
    assert check(ops.add_layer_norm, (learned(3, 5), learned(3, 5), learned(5), learned(5)))
    assert check(ops.add_rms_norm, (learned(3, 5), learned(3, 5), learned(5)))
    assert check(ops.bias_gelu, (learned(3, 5), learned(5)))
    assert check(ops.swiglu, (learned(3, 6),))
    assert check(lambda x, mask: ops.masked_softmax(x, mask, 0.5), (learned(2, 3, 5), learned(1, 5)))
    cos, sin = ops.rotary_tables(3, 4, dtype=torch.float64)
    assert check(lambda x: ops.rotary_embedding(x, cos, sin, "neighbours"), (learned(1, 2, 3, 6),))
    assert check(ops.RotaryEmbedding(3, 4), (learned(1, 2, 3, 6),))
    targets = torch.tensor([1, -100, 0])
    for in_forward in (True, False):
        assert check(
            lambda h, w, b: ops.linear_cross_entropy(h, w, targets, b, gradients_in_forward=in_forward, chunk_rows=2),
            (learned(3, 4), learned(5, 4), learned(5)),
        )


def test_repeats_dropout_with_the_seed():
    x = torch.ones(1000, requires_grad=True)
    torch.manual_seed(2)
    first = ops.dropout(x, 0.25)
    assert first.detach().unique().tolist() == pytest.approx([0, 4 / 3])
    first.sum().backward()
    assert torch.equal(x.grad, first.detach())
    torch.manual_seed(2)
    assert torch.equal(ops.dropout(x, 0.25), first)
    assert ops.dropout(x, 0.25, training=False) is not None


@pytest.mark.parametrize("head", [torch.float16, torch.float32])
def test_applies_a_loss_scale_to_gradients_that_wait_in_fp16(head):
    torch.manual_seed(4)
    hidden, weight, targets = torch.randn(512, 8).half(), (torch.randn(8000, 8) * 0.02 + 0.05).to(head), torch.randint(8000, (512,))

    def gradients(loss, *dtypes):
        leaves = [leaf.to(dtype, copy=True).requires_grad_() for leaf, dtype in zip((hidden, weight), dtypes)]
        (loss(*leaves) * 65536).backward()
        return [leaf.grad.double() for leaf in leaves]

    exact = gradients(lambda h, w: F.cross_entropy(h @ w.T, targets), torch.float64, torch.float64)
    for got, want in zip(gradients(lambda h, w: ops.linear_cross_entropy(h, w, targets), torch.float16, head), exact):
        assert (got - want).norm() < 5e-3 * want.norm()


def test_trains_modules():
    torch.manual_seed(3)
    tokens, norm, rms, loss = ops.Embedding(11, 8, 0), ops.LayerNorm(8), ops.RMSNorm(8), ops.LinearCrossEntropy(8, 11, bias=True)
    rotary = ops.RotaryEmbedding(4, 4)
    model = torch.nn.ModuleList([tokens, norm, rms, loss, rotary])
    assert {name for name, _ in model.named_parameters()} == {"0.weight", "1.weight", "1.bias", "2.weight", "3.weight", "3.bias"}
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    batch = torch.randint(1, 11, (2, 4))
    losses = []
    for _ in range(20):
        h = tokens(batch)
        turned = rotary(h.view(2, 4, 2, 4).transpose(1, 2)).transpose(1, 2).reshape(h.shape)
        normed, total = norm(turned, h)
        value = loss(rms(normed + total), batch)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert losses[-1] < losses[0] / 2
    with pytest.raises(ValueError, match="positions 0 to 5 leave the tables"):
        rotary(torch.zeros(1, 1, 5, 4))


def test_names_the_argument_in_errors():
    with pytest.raises(Exception, match=r"weight has shape \[7\], expected \[8\]"):
        ops.layer_norm(torch.zeros(2, 8), torch.ones(7))
    with pytest.raises(Exception, match="reduction is 'avg', expected 'mean', 'sum' or 'none'"):
        ops.linear_cross_entropy(torch.zeros(2, 8), torch.zeros(3, 8), torch.zeros(2, dtype=torch.long), reduction="avg")
    with pytest.raises(Exception, match="ran with create_graph"):
        x = learned(2, 6)
        torch.autograd.grad(ops.bias_gelu(x).sum(), x, create_graph=True)
