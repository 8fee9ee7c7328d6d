"""Saves and loads an engine's checkpoints, and its weights as state dicts."""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from deepspeed import _core
from deepspeed._errors import UsageError
from deepspeed.runtime.engine_parts.checkpoint_names import CheckpointNames
from deepspeed.utils.logging import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def _warn_of_extra_states(module: torch.nn.Module) -> None:
    """Names modules that keep more than parameters and buffers, which an engine's files leave out."""
    for name, part in module.named_modules():
        if type(part).get_extra_state is not torch.nn.Module.get_extra_state:
            logger.warning_once(
                f"{name or 'the model'}: what get_extra_state() of {type(part).__qualname__} returns is not saved: save it in client_state"
            )


class EngineSaving(CheckpointNames):
    """Saves and loads in DeepSpeed's layout, which its own tools can read."""

    def save_checkpoint(
        self,
        save_dir: str,
        tag: str | None = None,
        client_state: dict[str, Any] = {},
        save_latest: bool = True,
        exclude_frozen_parameters: bool = False,
    ) -> bool:
        """Writes `<save_dir>/<tag>/...`, then `<save_dir>/latest`. Returns True. Collective.

        tag: by default global_step<N>. client_state: what load_checkpoint() returns later: values, tensors and what pickle can hold.
        save_latest: False leaves `latest` unchanged. Raises UsageError, IoError and TypeError, naming the value. Gradients of an open
        accumulation window are not saved, with a warning: a resumed run starts the window again.
        """
        if not save_dir:
            raise UsageError(f"save_checkpoint(): save_dir is {save_dir!r}, expected a folder")
        _warn_of_extra_states(self.module)
        if self.optimizer is not None:
            self.optimizer._push()  # includes what a script's schedule has written since the last step
        self._core.save_checkpoint(
            os.fspath(save_dir), "" if tag is None else str(tag), dict(client_state), save_latest, exclude_frozen_parameters
        )
        return True

    def load_checkpoint(
        self,
        load_dir: str,
        tag: str | None = None,
        load_module_strict: bool = True,
        load_optimizer_states: bool = True,
        load_lr_scheduler_states: bool = True,
        load_module_only: bool = False,
        custom_load_fn: Callable[..., Any] | None = None,
    ) -> tuple[str | None, dict[str, Any] | None]:
        """Loads a checkpoint, at any number of ranks. Collective.

        Returns (path, client state), or (None, None) if there is no checkpoint. tag: by default the one that `<load_dir>/latest` names.
        load_module_strict: False allows names to differ. load_optimizer_states, load_lr_scheduler_states: False starts them again.
        load_module_only: loads only the weights. custom_load_fn(src=state dict, dst=module): loads the weights itself. Raises
        CheckpointError if a file is missing, damaged or does not fit, or if it holds a class that is no safe global.
        """

        def load(tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
            assert custom_load_fn is not None
            custom_load_fn(src=OrderedDict(tensors), dst=self.module)

        if tag is None and not os.path.isfile(os.path.join(load_dir, self._latest_file())):
            logger.warning(
                f"Unable to find latest file at {os.path.join(load_dir, self._latest_file())}, if trying to load latest "
                "checkpoint please ensure this file exists or pass an explicit checkpoint tag when loading a checkpoint."
            )
            return None, None
        optimizer = self.optimizer
        with optimizer._showing() if optimizer is not None else contextlib.nullcontext():
            path, client_state = self._core.load_checkpoint(
                os.fspath(load_dir),
                "" if tag is None else str(tag),
                load_module_strict,
                load_optimizer_states,
                load_lr_scheduler_states,
                load_module_only,
                None if custom_load_fn is None else load,
            )
        if not path:
            return None, None
        if optimizer is not None:
            optimizer.overflow = self._core.global_steps() > 0 and not self._core.was_step_applied()
        return path, client_state

    def _latest_file(self) -> str:
        return "latest_universal" if self.load_universal_checkpoint() else "latest"

    def save_16bit_model(
        self, save_dir: str | os.PathLike[str], save_filename: str = "pytorch_model.bin", exclude_frozen_parameters: bool = False
    ) -> bool:
        """Writes the weights in their own dtype into one file, on rank 0. Collective.

        If ranks share the model, as an mpu says, each part has a file: mp_rank_00_pytorch_model.bin and so on. Returns False if stage 3
        may not gather the weights (stage3_gather_16bit_weights_on_model_save), otherwise True. Raises IoError.
        """
        if self.zero_optimization_stage() == 3 and not self.zero_gather_16bit_weights_on_model_save():
            logger.warning(
                "Did not save the model, since `stage3_gather_16bit_weights_on_model_save` is False: set it to True to save "
                "16 bit weights at stage 3"
            )
            return False
        _warn_of_extra_states(self.module)
        self._core.save_16bit_model(os.fspath(save_dir), save_filename, exclude_frozen_parameters)
        return True

    save_fp16_model = save_16bit_model

    def module_state_dict(
        self, destination: Any = None, prefix: str = "", keep_vars: bool = False, exclude_frozen_parameters: bool = False
    ) -> dict[str, Any]:
        state: dict[str, Any] = self.module.state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)
        if exclude_frozen_parameters:
            for name, param in self.module.named_parameters():
                if not param.requires_grad:
                    state.pop(prefix + name, None)
        return state

    def load_module_state_dict(
        self,
        checkpoint: Mapping[str, Any],
        strict: bool = True,
        custom_load_fn: Callable[..., Any] | None = None,
        fetch_z3_params: bool = False,
    ) -> None:
        state = checkpoint["module"] if "module" in checkpoint else checkpoint
        if custom_load_fn is not None:
            custom_load_fn(src=state, dst=self.module)
        else:
            self._core.load_module_state_dict([(name, tensor) for name, tensor in state.items()], strict)

    def _consolidated_16bit_state_dict(self, exclude_frozen_parameters: bool = False) -> OrderedDict[str, torch.Tensor] | None:
        if self.zero_optimization_stage() == 3:
            return self._zero3_consolidated_16bit_state_dict(exclude_frozen_parameters)
        state = self.module_state_dict(exclude_frozen_parameters=exclude_frozen_parameters)
        return OrderedDict((name, tensor.detach().cpu()) for name, tensor in state.items()) if dist.get_rank() == 0 else None

    def _zero3_consolidated_16bit_state_dict(self, exclude_frozen_parameters: bool = False) -> OrderedDict[str, torch.Tensor] | None:
        """Returns the whole weights on the CPU of rank 0, and None on other ranks. Collective. Parameters are made whole one at a time."""
        if self.zero_optimization_stage() != 3:
            raise ValueError("this function requires ZeRO-3 mode")
        keeps = dist.get_rank() == 0
        result: OrderedDict[str, torch.Tensor] = OrderedDict()
        first: dict[int, str] = {}
        for name, tensor in self.module.state_dict(keep_vars=True).items():
            if not isinstance(tensor, torch.Tensor):
                continue
            if exclude_frozen_parameters and isinstance(tensor, torch.nn.Parameter) and not tensor.requires_grad:
                continue
            if id(tensor) in first:
                if keeps:
                    result[name] = result[first[id(tensor)]]
                continue
            first[id(tensor)] = name
            scope = _core.GatheredParameters([tensor], None)
            if keeps:
                result[name] = tensor.detach().cpu().clone()
            scope.close()
        return result if keeps else None
