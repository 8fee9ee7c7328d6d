"""Where the states of an engine are."""
from deepspeed.runtime.zero.offload_enums import OffloadStateTypeEnum


def get_state_devices(model, state):
    """Returns the set of devices of an engine's states of a kind (OffloadStateTypeEnum)."""
    optimizer = model.optimizer
    if state == OffloadStateTypeEnum.hp_params:
        return {tensor.device for tensor in optimizer.fp32_partitioned_groups_flat}
    if state == OffloadStateTypeEnum.optim_states:
        kept = (value for values in optimizer.optimizer.state.values() for value in values.values())
        return {value.device for value in kept if hasattr(value, "device")}
    if state == OffloadStateTypeEnum.lp_params:
        return {param.ds_tensor.device for param in model.module.parameters()}
    raise ValueError(f"get_state_devices(): the kind {state} has no tensors that outlive a step")
