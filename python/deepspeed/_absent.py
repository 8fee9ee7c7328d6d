"""Lets programs import names of DeepSpeed that this package lacks.

Programs import more than they use. A table lists absent packages, modules and names. Below an absent package every name is absent. A
finder makes absent modules. Calling what is absent raises NotSupportedError, which says what to use in its place.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from typing import TYPE_CHECKING

from deepspeed._errors import NotSupportedError, not_supported, not_supported_class

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, NoReturn

# Maps what to use instead to the names that are absent below `deepspeed`. Of two matching prefixes the longer one decides.
_ABSENT = {
    "run the script with several configs and compare its speed": "autotuning",
    "engine.compile() compiles the module by torch.compile at stages 0 to 2; leave passes over graphs out": "compile ops.compile",
    "quantize or prune the module before initialize(), by torch.ao for example": (
        "compression.basic_layer compression.compress compression.compression_scheduler compression.convert_conv1d_to_linear "
        "compression.init_compression compression.redundancy_clean compression.scheduler runtime.compression "
        "compression.helper.convert_conv1d_to_linear compression.helper.fix_compression compression.helper.module_replacement"
    ),
    "run the module itself under torch.inference_mode(); at stage 3 through the engine": (
        "inference model_implementations module_inject.DSPolicy module_inject.EmbeddingLayer module_inject.GroupQuantizer "
        "module_inject.HFBertLayerPolicy module_inject.Normalize module_inject.containers module_inject.generic_injection "
        "module_inject.quantize_transformer_layer ops.transformer.DeepSpeedInferenceConfig ops.transformer.DeepSpeedMoEInference "
        "ops.transformer.DeepSpeedMoEInferenceConfig ops.transformer.DeepSpeedTransformerInference ops.transformer.inference"
    ),
    "torch.save() and save_checkpoint() of the engine write files": "datastates io nebula nvme ops.gds runtime.model_checkpointing",
    "use torch.nn.Linear, or PEFT for LoRA, before initialize()": "linear",
    "tensor and expert parallelism do not exist; partition the model by ZeRO stage 3": (
        "checkpoint.autoep_universal merge_tp_model_init_into_config module_inject.AutoTPConfig module_inject.AutoTPPresets "
        "module_inject.LinearAllreduce module_inject.LinearLayer module_inject.PartitionType module_inject.ReplaceWithTensorSlicing "
        "module_inject.SubParamLinearAllreduce module_inject.SubParamLinearLayer module_inject.TPLayerSpec module_inject.auto_ep "
        "module_inject.auto_ep_config module_inject.auto_ep_folding module_inject.auto_ep_layer "
        "module_inject.auto_ep_preset_adapters module_inject.auto_ep_presets module_inject.auto_tp "
        "module_inject.auto_tp_model_utils module_inject.autotp_config module_inject.layers module_inject.merge_autotp_configs "
        "module_inject.replace_module module_inject.set_autotp_mode module_inject.tp_plan_converter module_inject.tp_shard "
        "moe.ep_count moe.ep_experts moe.ep_kernels moe.ep_repack moe.ep_router moe.ep_tp_dispatch moe.experts "
        "moe.fused_expert_layout moe.mappings moe.sharded_moe record_tp_model_init_args runtime.tensor_parallel"
    ),
    "the kernels of torch do the same computation": (
        "ops.deepspeed4science ops.fp_quantizer ops.pin_memory ops.quantizer ops.sparse_attention ops.triton_ops"
    ),
    "leave compressed collectives out of the config; torch.distributed has the plain ones": (
        "runtime.comm.compressed runtime.comm.mpi runtime.comm.nccl"
    ),
    "generate with the module itself, inside of GatheredParameters at stage 3": (
        "runtime.hybrid_engine runtime.hybrid_engine_graph runtime.rollout"
    ),
    "sequence parallelism does not exist; shorten the sequences or use activation checkpointing": (
        "compile.init_sp compile.passes.long_context_checkpointing compile.passes.sp_compile runtime.sequence_parallel sequence"
    ),
    "let all tokens pass all layers: leave random layer token dropping out of the script and of the config": (
        "ops.random_ltd runtime.data_pipeline.data_routing"
    ),
    "read the samples by a torch Dataset, and find a measure of each by a loop over it; dynamic batching takes lengths as "
    "dataset_seqlens": "runtime.data_pipeline.data_sampling.data_analyzer runtime.data_pipeline.data_sampling.indexed_dataset",
    "torch.profiler and torch.utils.flop_counter.FlopCounterMode measure the module; wall_clock_breakdown times a step": "profiling",
    "deepspeed --elastic_training starts a job again without the machine that was lost": (
        "elasticity.DSElasticAgent elasticity.elastic_agent elasticity.is_torch_elastic_compatible elasticity.utils"
    ),
    "deepspeed.utils.safe_get_full_fp32_param(), safe_get_full_grad() and their siblings read and write what the optimizer holds": (
        "utils.get_full_hp_grad utils.get_full_hp_param utils.get_hp_fragment_mapping utils.lazy_init_hp_params_optimizer_state "
        "utils.link_hp_params utils.map_to_flat_opt_states utils.mixed_precision_linkage utils.set_full_hp_grad utils.set_full_hp_param"
    ),
    "the engine finds the matrices for Muon by itself: call initialize() alone": "set_optimizer_flags",
    "set super_offload in the section offload_optimizer of the config": "runtime.superoffload",
    "set the section offload_optimizer of the config, or use DeepSpeedCPUAdam": (
        "ops.adam.ZenFlowCPUAdam ops.adam.ZenFlowSelectiveAdamW ops.adam.ZenFlowSelectiveAdamW_stage3 ops.adam.zenflow_torch_adam "
        "runtime.zenflow"
    ),
    "leave it out of the config": (
        "runtime.activation_checkpointing.config runtime.data_pipeline.curriculum_scheduler "
        "runtime.data_pipeline.data_sampling.data_sampler runtime.domino runtime.quantize runtime.state_dict_factory "
        "runtime.swap_tensor.async_swapper runtime.swap_tensor.optimizer_utils runtime.swap_tensor.partitioned_optimizer_swapper "
        "runtime.swap_tensor.partitioned_param_swapper runtime.swap_tensor.pipelined_optimizer_swapper runtime.zero.mics_utils "
        "runtime.zero.muon.original_muon runtime.zero.partitioned_param_coordinator"
    ),
}
_WAYS_OUT = {f"deepspeed.{prefix}": way_out for way_out, prefixes in _ABSENT.items() for prefix in prefixes.split()}


def way_out_of(fullname: str) -> str | None:
    """Returns what to use in place of a dotted name that is absent.

    A name is absent if the table lists it or a package above it. Returns None for any other name.
    """
    prefix = fullname
    while prefix:
        if prefix in _WAYS_OUT:
            return _WAYS_OUT[prefix]
        prefix = prefix.rpartition(".")[0]
    return None


def stand_in(module: str, name: str) -> Any:
    """Returns what stands for an absent name of a module.

    A capitalized name gives a class, any other name a module, which can also be called. Raises AttributeError for a name that is not
    absent.
    """
    full = f"{module}.{name}"
    way_out = way_out_of(full)
    if way_out is None or name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    is_class = name.lstrip("_")[:1].isupper()
    if not is_class and hasattr(sys.modules[module], "__path__"):
        return importlib.import_module(full)
    made = not_supported_class(full, way_out) if is_class else not_supported(full, way_out)
    made.__module__ = module
    sys.modules[module].__dict__[name] = made
    return made


class _AbsentModule(types.ModuleType):
    """Makes its names when they are requested. The module may stand for a function, so calling it raises NotSupportedError."""

    def __getattr__(self, name: str) -> Any:
        return stand_in(self.__name__, name)

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotSupportedError(f"{self.__name__} is not supported: {way_out_of(self.__name__)}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes absent modules. It is the last finder of the path, so it only sees modules that no file provides."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if way_out_of(fullname) is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.update(__all__=[], __doc__=f"Has no counterpart here: {way_out_of(module.__name__)}.")


def install() -> None:
    """Appends the finder to sys.meta_path, once."""
    if not any(type(finder).__qualname__ == "_Finder" and type(finder).__module__ == __name__ for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
