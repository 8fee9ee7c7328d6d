"""DeepSpeedConfig: a config, read, checked and resolved by the core."""
import torch.distributed as dist

from deepspeed import _config, _core


class DeepSpeedConfig:
    """Shows the config's keys as attributes. Raises ConfigError, naming the key."""

    def __init__(self, config, mpu=None, mesh_device=None):
        given = _config.read_config(config)
        size = dist.get_world_size() if dist.is_initialized() else 1
        self._fill(given, _core.load_config(_config.for_core(given), size))

    @classmethod
    def of_resolved(cls, given, resolved):
        made = cls.__new__(cls)
        made._fill(given, resolved)
        return made

    def _fill(self, given, resolved):
        self._param_dict = given
        for key, value in resolved.items():
            setattr(self, key, value)
