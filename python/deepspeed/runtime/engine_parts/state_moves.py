"""Moves of an engine's states from the device to the host's memory and back."""

from deepspeed.runtime.zero.offload_enums import OffloadDeviceEnum, OffloadStateTypeEnum


class EngineStateMoves:
    """Frees the device's memory for something else between two steps, at stages 1 to 3."""

    def offload_states(self, include=None, device=OffloadDeviceEnum.cpu, pin_memory=True, non_blocking=False):
        """Moves states of these kinds (None: all) to the host, until reload_states(); training calls are errors meanwhile."""
        kinds = None if include is None else [OffloadStateTypeEnum(kind).value for kind in include]
        self._core.offload_states(kinds, OffloadDeviceEnum(device).value, pin_memory, non_blocking)

    def reload_states(self, non_blocking=False):
        """Moves them back."""
        self._core.reload_states(non_blocking)
