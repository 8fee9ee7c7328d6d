"""Names the files of an engine's checkpoints, and their keys about parallelism."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from deepspeed.checkpoint.constants import CHECKPOINT_PARALLEL_DIMS, CHECKPOINT_PP_DEGREE, CHECKPOINT_TP_DEGREE
from deepspeed.runtime.engine_parts.settings import EngineSettings

if TYPE_CHECKING:
    import torch

    from deepspeed._types import Mpu


def checkpoint_parallel_metadata(mpu: Mpu | None) -> dict[str, dict[str, int]]:
    """Returns the model file's key with the degrees of pipeline and tensor parallelism."""
    from deepspeed.utils.bwc import bwc_pipeline_parallel_world_size, bwc_tensor_model_parallel_world_size

    degrees = {
        CHECKPOINT_PP_DEGREE: bwc_pipeline_parallel_world_size(mpu),
        CHECKPOINT_TP_DEGREE: bwc_tensor_model_parallel_world_size(mpu),
    }
    return {CHECKPOINT_PARALLEL_DIMS: degrees}


class CheckpointNames(EngineSettings):
    """Names the files as the core does. dp_rank and mp_rank: data-parallel and model-parallel ranks."""

    @property
    def checkpoint_mp_rank(self) -> int:
        return 0 if self.mpu is None else self.mpu.get_model_parallel_rank()

    @property
    def save_non_zero_checkpoint(self) -> bool:
        """Tells whether this rank writes a model file."""
        return self._data_parallel_rank == 0 or self.is_first_weights_partition_group()

    @property
    def _shard_rank(self) -> int:
        return self._data_parallel_rank % self._num_shards

    def _get_zero_ckpt_prefix(self, dp_rank: int, bf16_mode: bool) -> str:
        return f"{'bf16_' if bf16_mode else ''}zero_pp_rank_{dp_rank}"

    def _get_rank_zero_ckpt_name(self, checkpoints_path: str, tag: object, mp_rank: int, dp_rank: int, bf16_mode: bool) -> str:
        name = f"{self._get_zero_ckpt_prefix(dp_rank, bf16_mode)}_mp_rank_{mp_rank:02d}_optim_states.pt"
        return os.path.join(checkpoints_path, str(tag), name)

    def _get_zero_ckpt_name(self, checkpoints_path: str, tag: object) -> str:
        """Returns the path of the optimizer file with this rank's partition."""
        return self._get_rank_zero_ckpt_name(checkpoints_path, tag, self.checkpoint_mp_rank, self._shard_rank, self.bfloat16_enabled())

    def _get_ckpt_name(
        self, checkpoints_path: str, tag: object, mp_placeholder: str | None = None, pp_placeholder: str | None = None
    ) -> str:
        """Returns the path of the model file; at stage 3 this rank's. A placeholder replaces a rank's number, as in a pattern."""
        mp_rank = mp_placeholder if mp_placeholder is not None else f"{self.checkpoint_mp_rank:02d}"
        name = f"mp_rank_{mp_rank}_model_states.pt"
        if self.zero_optimization_partition_weights():
            rank = pp_placeholder if pp_placeholder is not None else self._shard_rank
            name = f"zero_pp_rank_{rank}_{name}"
        return os.path.join(checkpoints_path, str(tag), name)

    def _get_optimizer_ckpt_name(self, checkpoints_path: str, tag: object, expp_rank: int) -> str:
        """Returns DeepSpeed's path for an optimizer of experts. Nothing is written there."""
        return os.path.join(checkpoints_path, str(tag), f"expp_rank_{expp_rank}_mp_rank_00_optim_states.pt")

    def _get_zero_param_shapes(self) -> list[dict[str, torch.Size]]:
        """Returns {name: shape} for each of the optimizer's groups; at stage 3 for each sub-group."""
        assert self.optimizer is not None
        return self.optimizer._owned.shapes()
