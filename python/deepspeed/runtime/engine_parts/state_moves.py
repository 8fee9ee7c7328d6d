"""Moves an engine's states from the device to host memory and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepspeed.runtime.engine_parts.part import EnginePart
from deepspeed.runtime.zero.offload_enums import OffloadDeviceEnum, OffloadStateTypeEnum

if TYPE_CHECKING:
    from collections.abc import Iterable


class EngineStateMoves(EnginePart):
    """Frees device memory between two steps, at stages 1 to 3."""

    def offload_states(
        self,
        include: Iterable[str | OffloadStateTypeEnum] | None = None,
        device: str | OffloadDeviceEnum = OffloadDeviceEnum.cpu,
        pin_memory: bool = True,
        non_blocking: bool = False,
    ) -> None:
        """Moves states of these kinds (None: all) to the host until reload_states(). Training calls are errors meanwhile."""
        kinds = None if include is None else [OffloadStateTypeEnum(kind).value for kind in include]
        self._core.offload_states(kinds, OffloadDeviceEnum(device).value, pin_memory, non_blocking)

    def reload_states(self, non_blocking: bool = False) -> None:
        """Moves the states back to the device."""
        self._core.reload_states(non_blocking)
