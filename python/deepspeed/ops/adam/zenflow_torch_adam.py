"""AdamW over chosen parts of parameters: the columns of a matrix that matter most now, while the rest is stepped elsewhere, later.

Who chooses sets on each parameter `selected_indices`, `selected_grad` of these columns and, with `offload`, the moments on the
host: `exp_avg_cpu_data` and `exp_avg_sq_cpu_data`. Vectors are chosen as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch.optim.adamw import adamw

from deepspeed.ops.closure import loss_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any


class _SelectiveAdamW(torch.optim.AdamW):
    """Steps parameters that have a `selected_grad`, and takes it away. Subclasses say where the selected values are."""

    def __init__(self, *args: Any, offload: bool = False, bucket_size: float = 5e8, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.offload = offload
        self.bucket_size = bucket_size
        self.step = self._step_with_offload if offload else self._step_without_offload  # type: ignore[method-assign]  # DeepSpeed's way

    # --- where the values are ---

    def _read(self, param: Any) -> torch.Tensor:
        raise NotImplementedError

    def _write(self, param: Any, values: torch.Tensor) -> None:
        raise NotImplementedError

    def _bring(self, params: Sequence[Any]) -> list[Any]:
        """Makes values readable, and returns the parameters of which they are not so by themselves."""
        return []

    def _send_back(self, params: Sequence[Any], changed: bool) -> None:
        """Undoes _bring()."""

    # --- what callers use ---

    def temp_copy_param(self, params: Mapping[int, Sequence[Any]] | Sequence[Any]) -> None:
        """Keeps a copy of what is selected now, which the next step begins with: on the host with `offload`."""
        for param in (param for members in self._by_group(params).values() for param in members if self._has_gradient(param)):
            brought = self._bring([param])
            values = self._read(param).detach().clone()
            self._send_back(brought, changed=False)
            param.temp_selected_param = values.cpu() if self.offload else values

    def copy_mv_from_cpu(self, params: Iterable[Any]) -> None:
        for param in params:
            param.exp_avg = param.exp_avg_cpu_data.to(param.device, non_blocking=True)
            param.exp_avg_sq = param.exp_avg_sq_cpu_data.to(param.device, non_blocking=True)

    def copy_mv_to_cpu(self, params: Iterable[Any]) -> None:
        for param in params:
            param.exp_avg_cpu_data.copy_(param.exp_avg, non_blocking=True)
            param.exp_avg_sq_cpu_data.copy_(param.exp_avg_sq, non_blocking=True)
            param.exp_avg = param.exp_avg_sq = None

    def clear_selected_mv(self) -> None:
        """Sets the moments to zero, as a new selection wants them."""
        for param in (param for group in self.param_groups for param in group["params"] if self.state.get(param)):
            moments = (param.exp_avg_cpu_data, param.exp_avg_sq_cpu_data) if self.offload else self._moments(param)
            for moment in moments:
                moment.zero_()

    @torch.no_grad()
    def group_step(self, params: Mapping[int, Sequence[Any]] | Sequence[Any]) -> None:
        """Steps these parameters: {number of the group: parameters}, or at stage 3 a list, whose items have a `group_id`."""
        for group, members in self._by_group(params).items():
            self._step_params(self.param_groups[group], [param for param in members if self._has_gradient(param)])

    @torch.no_grad()
    def _step_without_offload(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = loss_of(closure)
        for group in self.param_groups:
            self._step_params(group, [param for param in group["params"] if self._has_gradient(param)])
        return loss

    @torch.no_grad()
    def _step_with_offload(self, closure: Callable[[], float] | None = None) -> float | None:
        """Steps some parameters at a time, whose moments are on the device meanwhile."""
        loss = loss_of(closure)
        for group in self.param_groups:
            bucket, numel = [], 0
            for param in filter(self._has_gradient, group["params"]):
                bucket.append(param)
                numel += param.numel()
                if numel >= self.bucket_size:
                    self._step_params(group, bucket)
                    bucket, numel = [], 0
            self._step_params(group, bucket)
        return loss

    # --- the step ---

    def _step_params(self, group: dict[str, Any], params: Sequence[Any]) -> None:
        if not params:
            return
        if self.offload:
            self.copy_mv_from_cpu(params)
        brought = self._bring(params)
        values = [self._start_of(param) for param in params]
        states = [self._state_of(param, value, group["amsgrad"]) for param, value in zip(params, values)]
        moments = [self._moments(param) for param in params]
        adamw(
            values,
            [param.selected_grad.to(value.device) for param, value in zip(params, values)],
            [first.view_as(value) for (first, _), value in zip(moments, values)],
            [second.view_as(value) for (_, second), value in zip(moments, values)],
            [state["max_exp_avg_sq"] for state in states] if group["amsgrad"] else [],
            [state["step"] for state in states],
            amsgrad=group["amsgrad"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=group["maximize"],
        )
        for param, value in zip(params, values):
            self._write(param, value)
            param.selected_grad = param.temp_selected_param = None
        self._send_back(brought, changed=True)
        if self.offload:
            self.copy_mv_to_cpu(params)

    def _start_of(self, param: Any) -> torch.Tensor:
        kept = getattr(param, "temp_selected_param", None)
        return self._read(param).clone() if kept is None else kept.to(param.device, copy=True)

    def _state_of(self, param: Any, value: torch.Tensor, amsgrad: bool) -> dict[str, Any]:
        state: dict[str, Any] = self.state[param]
        state.setdefault("step", torch.zeros((), device=value.device))
        names = ([] if self.offload else ["exp_avg", "exp_avg_sq"]) + (["max_exp_avg_sq"] if amsgrad else [])
        for name in names:
            if name not in state:
                state[name] = torch.zeros_like(value)
        return state

    def _moments(self, param: Any) -> tuple[torch.Tensor, torch.Tensor]:
        if self.offload:
            return param.exp_avg, param.exp_avg_sq
        return self.state[param]["exp_avg"], self.state[param]["exp_avg_sq"]

    @staticmethod
    def _by_group(params: Mapping[int, Sequence[Any]] | Sequence[Any]) -> Mapping[int, Sequence[Any]]:
        if isinstance(params, Mapping):
            return params
        groups: dict[int, list[Any]] = {}
        for param in params:
            groups.setdefault(param.group_id, []).append(param)
        return groups

    @staticmethod
    def _has_gradient(param: object) -> bool:
        return getattr(param, "selected_grad", None) is not None


class ZenFlowSelectiveAdamW(_SelectiveAdamW):
    """Steps columns of whole parameters."""

    def _read(self, param: Any) -> torch.Tensor:
        values: torch.Tensor = param.data
        return values if values.dim() == 1 else values[:, param.selected_indices]

    def _write(self, param: Any, values: torch.Tensor) -> None:
        if param.dim() == 1:
            param.data.copy_(values)
        else:
            param.data[:, param.selected_indices] = values


class ZenFlowSelectiveAdamW_stage3(_SelectiveAdamW):
    """Steps columns of shards, `param.ds_tensor`, in which each is a row: `complete_numel` elements from `complete_column_offset` on.

    A shard on a disk, which leaves a number in its place, is swapped in by the parameter's `nvme_swapper` meanwhile.
    """

    def _bring(self, params: Sequence[Any]) -> list[Any]:
        away = [param for param in params if param.ds_tensor.data.dim() == 0]
        for param in away:
            param.nvme_swapper.swap_in([param], async_op=False)
        return away

    def _send_back(self, params: Sequence[Any], changed: bool) -> None:
        for param in params:
            swapper = param.nvme_swapper
            (swapper.swap_out_and_release if changed else swapper.remove_partition_and_release_buffers)([param])

    @staticmethod
    def _columns(param: Any) -> torch.Tensor:
        """Returns a view of the shard, a row for each column."""
        shard: torch.Tensor = param.ds_tensor.data
        if len(param.ds_shape) == 1:
            return shard
        return shard.narrow(0, param.complete_column_offset, param.complete_numel).view(-1, param.ds_shape[1])

    def _read(self, param: Any) -> torch.Tensor:
        columns = self._columns(param)
        return columns if columns.dim() == 1 else columns[param.selected_indices.to(columns.device)]

    def _write(self, param: Any, values: torch.Tensor) -> None:
        columns = self._columns(param)
        if columns.dim() == 1:
            columns.copy_(values)
        else:
            columns[param.selected_indices.to(columns.device)] = values.to(columns.dtype)
