"""AdamW over chosen columns, against torch.optim.AdamW over all of them."""

import pytest
import torch

from deepspeed.ops.adam import ZenFlowSelectiveAdamW, ZenFlowSelectiveAdamW_stage3


def shard_of(param):
    """Gives a parameter what stage 3 has of it: its columns, as rows, one after the other."""
    param.ds_shape = tuple(reversed(param.shape))
    param.ds_tensor = param.detach().t().contiguous().view(-1)
    param.complete_column_offset, param.complete_numel, param.group_id = 0, param.numel(), 0


def whole_of(param):
    return param.ds_tensor.view(param.ds_shape).t() if hasattr(param, "ds_tensor") else param.detach()


@pytest.mark.parametrize("offload", [False, True])
@pytest.mark.parametrize("kind", [ZenFlowSelectiveAdamW, ZenFlowSelectiveAdamW_stage3])
def test_chosen_columns_are_stepped_as_torch_does_and_the_others_stay(kind, offload):
    torch.manual_seed(0)
    param = torch.nn.Parameter(torch.randn(3, 5))
    expected = torch.nn.Parameter(param.detach()[:, [1, 4]].clone())
    before = param.detach().clone()
    if kind is ZenFlowSelectiveAdamW_stage3:
        shard_of(param)
    mine, torchs = kind([param], lr=0.1, offload=offload, bucket_size=1), torch.optim.AdamW([expected], lr=0.1)
    param.selected_indices = torch.tensor([1, 4])
    param.exp_avg_cpu_data, param.exp_avg_sq_cpu_data = torch.zeros(6), torch.zeros(6)
    for _ in range(4):
        expected.grad = torch.randn(3, 2)
        param.selected_grad = expected.grad.t() if kind is ZenFlowSelectiveAdamW_stage3 else expected.grad
        mine.step()
        torchs.step()
        assert param.selected_grad is None
    found = whole_of(param)
    torch.testing.assert_close(found[:, [1, 4]], expected.detach())
    assert torch.equal(found[:, [0, 2, 3]], before[:, [0, 2, 3]])


def test_a_kept_copy_is_what_the_step_begins_with():
    param = torch.nn.Parameter(torch.ones(2, 3))
    optimizer = ZenFlowSelectiveAdamW([param], lr=0.5, weight_decay=0.0)
    param.selected_indices, param.selected_grad = torch.tensor([2]), torch.ones(2, 1)
    optimizer.temp_copy_param({0: [param]})
    param.data[:, 2] = 7.0  # something else has stepped all columns meanwhile
    optimizer.group_step({0: [param]})
    torch.testing.assert_close(param.data[:, 2], torch.full((2,), 0.5))
    optimizer.clear_selected_mv()
    assert not optimizer.state[param]["exp_avg"].any()


def test_a_shard_on_a_disk_is_there_once_a_step():
    class Disk:
        def __init__(self, param):
            self.calls, self.kept = [], param.ds_tensor.clone()
            param.ds_tensor.data = torch.tensor(0.0)

        def swap_in(self, params, async_op):
            self.calls.append("in")
            params[0].ds_tensor.data = self.kept.clone()

        def swap_out_and_release(self, params):
            self.calls.append("out")
            self.kept = params[0].ds_tensor.clone()
            params[0].ds_tensor.data = torch.tensor(0.0)

        def remove_partition_and_release_buffers(self, params):
            self.calls.append("released")
            params[0].ds_tensor.data = torch.tensor(0.0)

    param = torch.nn.Parameter(torch.ones(2, 3))
    shard_of(param)
    disk = param.nvme_swapper = Disk(param)
    param.selected_indices, param.selected_grad = torch.tensor([0]), torch.ones(1, 2)
    optimizer = ZenFlowSelectiveAdamW_stage3([param], lr=0.5, weight_decay=0.0)
    optimizer.temp_copy_param([param])
    optimizer.step()
    assert disk.calls == ["in", "released", "in", "out"] and param.ds_tensor.dim() == 0
    torch.testing.assert_close(disk.kept.view(3, 2), torch.tensor([[0.5, 0.5], [1.0, 1.0], [1.0, 1.0]]))
