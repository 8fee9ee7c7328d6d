"""Represents a checkpoint's folder: its degrees of parallelism, metadata and states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed._errors import not_supported
from deepspeed.checkpoint.constants import (
    AUTOEP_LAYERS_KEY,
    AUTOEP_LAYERS_KEY_LEGACY,
    AUTOEP_ZERO12_REQUIRED_FIELDS,
    CHECKPOINT_PARALLEL_DIMS,
    CHECKPOINT_PP_DEGREE,
    CHECKPOINT_TP_DEGREE,
    MODEL_FILE_PREFIX,
    PARAM_SHAPES,
    UNIVERSAL_CHECKPOINT_INFO,
)
from deepspeed.checkpoint.reshape_3d_utils import get_model_3d_descriptor_from_metadata, model_3d_desc
from deepspeed.checkpoint.reshape_meg_2d import meg_2d_parallel_map, reshape_meg_2d_parallel
from deepspeed.checkpoint.reshape_utils import (
    basic_folder_validation,
    get_files,
    get_files_with_prefix,
    get_zero_files,
    merge_state,
)
from deepspeed.checkpoint.utils import read_state
from deepspeed.checkpoint.zero_checkpoint import ZeROCheckpoint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

ARGS_KEY = "args"
CHECKPOINT_INFO_KEY = "checkpoint_info"
ITERATION_KEY = "iteration"
_GLOBAL_KEYS = (ARGS_KEY, CHECKPOINT_INFO_KEY, UNIVERSAL_CHECKPOINT_INFO)
_ORDERING = "use_data_before_expert_parallelism"
_NO_LAYERS = "files of a pipeline's layers are not read; load them by torch.load()"


class DeepSpeedCheckpoint:
    """Reads each model file once, and keeps what describes the checkpoint.

    Degrees that are not given are those of the source. model_state_metadata: for each model file, (path, {parallel dimensions, shapes of
    parameters, ...}).
    """

    def __init__(
        self,
        dir: str,
        tp_degree: int | None = None,
        pp_degree: int | None = None,
        dp_degree: int | None = None,
        final_layer_norm_idx: int = -1,
    ) -> None:
        basic_folder_validation(dir)
        self.dir = dir
        self.final_layer_norm_idx = final_layer_norm_idx
        self.file_list = get_files(dir)
        self.mp_rank_files = get_files_with_prefix(self.file_list, MODEL_FILE_PREFIX)
        assert self.mp_rank_files, f"{dir} holds no checkpoint of DeepSpeed: it has no file {MODEL_FILE_PREFIX}*"
        self.model_state_metadata, self.global_state = self._read_model_files()
        source = get_model_3d_descriptor_from_metadata(self.file_list, get_zero_files(dir), self.model_state_metadata)
        self.zero_checkpoint = ZeROCheckpoint(dir, source_3d=source)
        self.tp_degree = source.tp_degree if tp_degree is None else tp_degree
        self.pp_degree = source.pp_degree if pp_degree is None else pp_degree
        self.dp_degree = source.dp_degree if dp_degree is None else dp_degree
        self.original_world_size = source.world_size()
        self.world_size = self.tp_degree * self.pp_degree * self.dp_degree
        self._make_maps(source)

    def _make_maps(self, source: model_3d_desc) -> None:
        self.old_2d_map = meg_2d_parallel_map(source.pp_degree, source.tp_degree)
        self.old_2d_map.simple_init()
        self.new_2d_map = reshape_meg_2d_parallel(source.pp_degree, source.tp_degree, self.pp_degree, self.tp_degree)
        if self.is_change_tp_degree() or self.is_change_pp_degree() or self.is_change_dp_degree():
            self.zero_checkpoint.reshape(model_3d_desc(self.pp_degree, self.tp_degree, self.dp_degree))

    def _read_model_files(self) -> tuple[list[tuple[str, dict[str, Any]]], dict[str, Any]]:
        metadata: list[tuple[str, dict[str, Any]]] = []
        global_state: dict[str, Any] = {}
        for path in self.mp_rank_files:
            state = read_state(path)
            metadata.append((path, _described(state)))
            if not global_state:
                global_state = {ITERATION_KEY: state.get(ITERATION_KEY, 0)}
                global_state.update({key: state.get(key) for key in _GLOBAL_KEYS})
        return metadata, global_state

    def is_change_tp_degree(self) -> bool:
        return self.tp_degree != self.zero_checkpoint.get_src_tp_degree()

    def is_change_pp_degree(self) -> bool:
        return self.pp_degree != self.zero_checkpoint.get_src_pp_degree()

    def is_change_dp_degree(self) -> bool:
        return self.dp_degree != self.zero_checkpoint.get_src_dp_degree()

    def get_iteration(self) -> int:
        iteration: int = self.global_state[ITERATION_KEY]
        return iteration

    def get_args(self) -> Any:
        return self._value(ARGS_KEY)

    def get_checkpoint_info(self, info_key: str = CHECKPOINT_INFO_KEY) -> Any:
        """Returns the first model file's value for a key, or None."""
        return self._value(info_key)

    def _value(self, key: str) -> Any:
        if key not in self.global_state:
            state = read_state(self.mp_rank_files[0])
            self.global_state[key] = state.get(key)
        return self.global_state[key]

    def get_zero_checkpoint_state(self, pp_index: int, tp_index: int, dp_index: int, strip_tensor_paddings: bool = True) -> Any:
        """Returns the optimizer state at a position in the grid of ranks."""
        return self.zero_checkpoint.get_state_for_rank(
            pp_index, tp_index, dp_index, keys_to_ignore=[PARAM_SHAPES], strip_tensor_paddings=strip_tensor_paddings
        )

    def get_zero_files(self, pp_index: int, tp_index: int, dp_index: int) -> list[str]:
        return self.zero_checkpoint.get_files_for_rank(pp_index, tp_index, dp_index)

    def get_2d_parallel_files(self, tp_index: int, pp_index: int) -> list[str]:
        assert tp_index < self.tp_degree and pp_index < self.pp_degree
        return [self.mp_rank_files[index] for index in self.new_2d_map.get_data(pp_index=pp_index, tp_index=tp_index)]

    def get_2d_parallel_state(self, tp_index: int, pp_index: int) -> dict[str, Any] | None:
        """Returns the model state at a position, joined from its files."""
        merged = None
        for path in self.get_2d_parallel_files(tp_index=tp_index, pp_index=pp_index):
            state = read_state(path)
            merged = state if merged is None else merge_state(merged, state)
        return merged

    def show_2d_mapping(self) -> None:
        for pp_index in range(self.pp_degree):
            for tp_index in range(self.tp_degree):
                print(f"[{pp_index}, {tp_index}] = {self.get_2d_parallel_files(tp_index=tp_index, pp_index=pp_index)}")

    def validate_files(self) -> None:
        from deepspeed.checkpoint.reshape_utils import validate_files

        validate_files(self.file_list)

    get_embedding_state = not_supported("DeepSpeedCheckpoint.get_embedding_state", _NO_LAYERS)
    get_embedding_files = not_supported("DeepSpeedCheckpoint.get_embedding_files", _NO_LAYERS)
    get_embedding_layer_id = not_supported("DeepSpeedCheckpoint.get_embedding_layer_id", _NO_LAYERS)
    get_transformer_state = not_supported("DeepSpeedCheckpoint.get_transformer_state", _NO_LAYERS)
    get_pp_transformer_map = not_supported("DeepSpeedCheckpoint.get_pp_transformer_map", _NO_LAYERS)
    get_final_norm_state = not_supported("DeepSpeedCheckpoint.get_final_norm_state", _NO_LAYERS)
    get_final_norm_files = not_supported("DeepSpeedCheckpoint.get_final_norm_files", _NO_LAYERS)
    get_final_norm_layer_id = not_supported("DeepSpeedCheckpoint.get_final_norm_layer_id", _NO_LAYERS)


def _described(state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a model file's metadata without its tensors. A value that is no dict is replaced by the name of its type."""
    experts = state.get(AUTOEP_LAYERS_KEY, state.get(AUTOEP_LAYERS_KEY_LEGACY))
    config = state.get("ds_config", {})
    dimensions = state.get(CHECKPOINT_PARALLEL_DIMS)
    if isinstance(dimensions, dict):
        dimensions = {key: dimensions.get(key) for key in (CHECKPOINT_PP_DEGREE, CHECKPOINT_TP_DEGREE)}
    return {
        CHECKPOINT_PARALLEL_DIMS: dimensions if isinstance(dimensions, (dict, type(None))) else _kind(dimensions),
        PARAM_SHAPES: _shapes(state.get(PARAM_SHAPES)),
        AUTOEP_LAYERS_KEY: _experts(experts),
        "ds_config": {_ORDERING: config.get(_ORDERING, False)} if isinstance(config, dict) else _kind(config),
    }


def _shapes(groups: object) -> dict[str, Any] | str | None:
    if not isinstance(groups, (list, tuple)) or not all(isinstance(group, dict) for group in groups):
        return None if groups is None else _kind(groups)
    return {name: shape for group in groups for name, shape in group.items()}


def _experts(layers: object) -> list[Any] | str | None:
    if not isinstance(layers, list):
        return None if layers is None else _kind(layers)
    wanted = ("moe_layer_id", "module_path", *AUTOEP_ZERO12_REQUIRED_FIELDS)
    return [{key: layer[key] for key in wanted if key in layer} if isinstance(layer, dict) else _kind(layer) for layer in layers]


def _kind(value: object) -> str:
    return type(value).__name__
