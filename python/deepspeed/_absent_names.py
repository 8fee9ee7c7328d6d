"""Names and modules without a counterpart, and what to use in their place. `_absent` makes them."""

from __future__ import annotations

_WAYS_OUT = {
    "AUTOTUNING": "run the script with several configs and compare its speed",
    "COMPILE": "engine.compile() compiles the module by torch.compile at stages 0 to 2; leave passes over graphs out",
    "COMPRESSION": "quantize or prune the module before initialize(), by torch.ao for example",
    "INFERENCE": "run the module itself under torch.inference_mode(); at stage 3 through the engine",
    "FILES": "torch.save() and save_checkpoint() of the engine write files",
    "LINEAR": "use torch.nn.Linear, or PEFT for LoRA, before initialize()",
    "TENSOR": "tensor and expert parallelism do not exist; partition the model by ZeRO stage 3",
    "KERNELS": "the kernels of torch do the same computation",
    "COMPRESSED_COMM": "leave compressed collectives out of the config; torch.distributed has the plain ones",
    "GENERATION": "generate with the module itself, inside of GatheredParameters at stage 3",
    "SEQUENCE": "sequence parallelism does not exist; shorten the sequences or use activation checkpointing",
    "TOKENS": "let all tokens pass all layers: leave random layer token dropping out of the script and of the config",
    "DATA": (
        "read the samples by a torch Dataset, and find a measure of each by a loop over it; dynamic batching takes lengths as "
        "dataset_seqlens"
    ),
    "PROFILING": "torch.profiler and torch.utils.flop_counter.FlopCounterMode measure the module; wall_clock_breakdown times a step",
    "ELASTICITY": "deepspeed --elastic_training starts a job again without the machine that was lost",
    "MASTERS": (
        "deepspeed.utils.safe_get_full_fp32_param(), safe_get_full_grad() and their siblings read and write what the optimizer holds"
    ),
    "MUON": "the engine finds the matrices for Muon by itself: call initialize() alone",
    "SUPEROFFLOAD": "set super_offload in the section offload_optimizer of the config",
    "ZENFLOW": "set the section offload_optimizer of the config, or use DeepSpeedCPUAdam",
    "REST": "leave it out of the config",
}

# Of each topic: the modules below deepspeed, and their names. A name that begins with a capital is a class. A module that this
# package has is here too, with what it lacks.
_NAMES = {
    "AUTOTUNING": {
        "autotuning.autotuner": "Autotuner",
        "autotuning.scheduler": "ResourceManager",
        "autotuning.utils": "get_val_by_key set_val_by_key",
        "autotuning": "Autotuner",
        "autotuning.tuner": "GridSearchTuner ModelBasedTuner RandomTuner",
    },
    "COMPILE": {
        "compile": "pad_tensors",
        "compile.backend": "_get_fw_real_inputs",
        "compile.custom_ops": "all_to_all copy_to_tp_region gather_from_tp_region reduce_from_tp_region",
        "compile.custom_ops.sp_dp_registry": "get_group populate_registry",
        "compile.fx": ("add_end_backward find_node_by_name get_node_shape_meta get_output_node replace_reduce_outputs_with_none"),
        "compile.inductor": "patch_create_aot_dispatcher_function",
        "compile.init_tp": "AUTOTP_MIN_TORCH_VERSION BROKEN_TRANSFORMERS_MOE_VERSIONS _check_broken_transformers_moe",
        "compile.init_z1_and_2": "init_z1_and_2",
        "compile.init_z3": "_allow_dynamo_dynamic_parameter_shapes_for_z3 _resolve_expected_grad_dtype init_z3",
        "compile.input_storage": "InputStorage",
        "compile.partitioner": "",
        "compile.passes": "MemoryProfilingInterpreter run_opt_passes",
        "compile.passes.contract": ("PassContract PassContractError get_pass_contract register_pass_contract validate_schedule"),
        "compile.passes.offload_activation": "",
        "compile.passes.offload_adam_states": "",
        "compile.passes.offload_parameters": "add_offload_parameter add_reload_parameter offload_parameter_fwd",
        "compile.passes.prefetch": "schedule_prefetch",
        "compile.passes.selective_gather": "",
        "compile.passes.tp_compile": "defer_collectives_to_compiler",
        "compile.passes.zero3_compile": "add_z3_gather_release add_z3_gather_release_bw add_z3_gather_release_fw",
        "compile.passes.zero_1_and_2_compile": "add_z1_reduce add_z2_reduce",
        "compile.patch_compiled_func": (
            "clear_backward_inputs get_backward_inputs patch_compiled_func pop_backward_input register_backward_frame unpatch_compiled_func"
        ),
        "compile.profilers": "ProfilingResult",
        "compile.profilers.graph_profile": "_backfill_missing_profile_metadata is_profile_incomplete",
        "compile.util": (
            "create_shard_offsets create_symbolic_slice_indices get_deepcompile_handle get_input_id_node "
            "get_label_id_node get_position_id_node get_sdpa_nodes is_deepcompile_supported shard_tensor_node"
        ),
        "compile.z3_eager_fallback": "DeepCompileZ3EagerFallback deepcompile_z3_forward_context",
        "ops.compile": "DeepCompileBuilder",
    },
    "COMPRESSION": {
        "compression.basic_layer": "ColumnParallelLinear_Compress LinearLayer_Compress RowParallelLinear_Compress",
        "compression.compress": "init_compression redundancy_clean",
        "compression.helper": "convert_conv1d_to_linear fix_compression module_replacement",
        "compression.scheduler": "compression_scheduler",
        "compression": "compression_scheduler convert_conv1d_to_linear init_compression redundancy_clean",
        "runtime.compression": "",
    },
    "INFERENCE": {
        "inference.config": "DeepSpeedInferenceConfig DeepSpeedMoEConfig default_inference_config",
        "inference.engine": "InferenceEngine init_inference",
        "inference.quantization.layers": "QuantizedLinear",
        "inference.quantization.quantization": "_init_group_wise_weight_quantization",
        "inference.quantization.utils": "DeQuantizer Quantizer",
        "inference.v2": "build_engine_factory RaggedInferenceEngineConfig DeepSpeedTPConfig InferenceEngineV2",
        "inference.v2.allocator": "on_device",
        "inference.v2.inference_parameter": "InferenceParameter",
        "inference.v2.inference_utils": "ActivationType DtypeEnum is_gated",
        "inference.v2.kernels.core_ops": (
            "BlasLibLinear CUDABiasActivation CUDAFPPostLN CUDAFPPreLN CUDAGatedActivation CUDARMSNorm CUDARMSPreNorm"
        ),
        "inference.v2.kernels.cutlass_ops": "MoEGEMM",
        "inference.v2.kernels.ragged_ops": (
            "AtomBuilder BlockedFlashAttn BlockedRotaryEmbeddings BlockedTrainedRotaryEmbeddings "
            "LinearBlockedKVCopy MoEGather MoEScatter RaggedEmbeddingKernel RaggedLogitsGather RaggedTopKGating "
            "get_kv_block_size get_q_block_size"
        ),
        "inference.v2.model_implementations.common_parameters": "",
        "inference.v2.model_implementations.exaone4_5": "",
        "inference.v2.model_implementations.exaone4_5.model": (
            "Exaone4_5InferenceModel _llama3_inverse_frequencies _supported_sequence_length"
        ),
        "inference.v2.model_implementations.flat_model_helpers": "flatten_inference_model restore_inference_model",
        "inference.v2.model_implementations.layer_container_base": "LayerContainer",
        "inference.v2.model_implementations.parameter_base": "ParamList ParameterBase ParametrizedList",
        "inference.v2.model_implementations.sharding": "",
        "inference.v2.modules": "ConfigBundle",
        "inference.v2.modules.configs": (
            "DSLinearConfig DSMoEConfig DSNormConfig DSSelfAttentionConfig PositionalEmbeddingType RotateHalfConfig"
        ),
        "inference.v2.modules.implementations": "cuda_post_ln",
        "inference.v2.modules.implementations.linear.quantized_linear": "fp_quantize",
        "inference.v2.modules.interfaces": (
            "DSLinearRegistry DSMoERegistry DSPostNormRegistry DSPreNormRegistry DSSelfAttentionBase DSSelfAttentionRegistry"
        ),
        "inference.v2.ragged": (
            "AllocationMode DSSequenceDescriptor DSStateManager DSStateManagerConfig KVCacheConfig MemoryConfig "
            "PlaceholderSequenceDescriptor RaggedBatchWrapper split_kv"
        ),
        "inference.v2.ragged.blocked_allocator": "BlockedAllocator",
        "model_implementations": "DeepSpeedTransformerInference DSClipEncoder",
        "ops.transformer.inference": (
            "DeepSpeedTransformerInference DeepSpeedInferenceConfig DeepSpeedMoEInference DeepSpeedMoEInferenceConfig"
        ),
        "ops.transformer.inference.bias_add": "nhwc_bias_add",
        "ops.transformer.inference.config": "DeepSpeedInferenceConfig",
        "ops.transformer.inference.op_binding": (
            "ResidualAddOp GELUGemmOp LinearOp MLPGemmOp QKVGemmOp SoftmaxContextOp SoftmaxOp VectorMatMulOp"
        ),
        "ops.transformer.inference.op_binding.bias_add": "BiasAddOp",
        "ops.transformer.inference.op_binding.bias_gelu": "BiasGeluOp",
        "ops.transformer.inference.op_binding.bias_relu": "BiasReluOp",
        "ops.transformer.inference.op_binding.gated_activation": "GatedActivationOp",
        "ops.transformer.inference.op_binding.layer_norm": "LayerNormOp",
        "ops.transformer.inference.op_binding.moe_res_matmul": "MoEResMatmulOp",
        "ops.transformer.inference.op_binding.pre_rms_norm": "PreRMSNormOp",
        "ops.transformer.inference.op_binding.rms_norm": "RMSNormOp",
        "ops.transformer.inference.triton": (
            "gelu layer_norm layer_norm_residual matmul_4d residual_add_bias softmax context_4d_matmul fp16_matmul score_4d_matmul"
        ),
        "ops.transformer.inference.triton.attention": "_triton_attention _triton_packed_flash",
        "ops.transformer.inference.triton.matmul_ext": "fp16_matmul",
        "inference": ("DeepSpeedTPConfig InferenceEngineV2 RaggedInferenceEngineConfig build_engine_from_ds_checkpoint build_hf_engine"),
        "model_implementations.diffusers": "",
        "model_implementations.features": "",
        "model_implementations.transformers": "",
        "module_inject.containers": "",
        "module_inject.containers.features": "",
        "module_inject": (
            "DSPolicy EmbeddingLayer GroupQuantizer HFBertLayerPolicy Normalize generic_injection quantize_transformer_layer"
        ),
        "ops.transformer": ("DeepSpeedInferenceConfig DeepSpeedMoEInference DeepSpeedMoEInferenceConfig DeepSpeedTransformerInference"),
    },
    "FILES": {
        "io": "FastFileWriter FastFileWriterConfig MockFileWriter PyFileWriter",
        "nvme": "ds_io_main generate_main parse_sweep_arguments sweep_main",
        "datastates.config": "DeepSpeedDataStatesConfig",
        "nebula.config": "DeepSpeedNebulaConfig",
        "ops.gds": "GDSBuilder",
        "runtime.model_checkpointing": "",
    },
    "LINEAR": {
        "linear": "LoRAConfig OptimizedLinear QuantizationConfig init_lora Init",
        "linear.config": "QuantizationConfig",
        "linear.optimized_linear": "LoRAOptimizedLinear",
        "linear.quantization": "QuantizedParameter",
    },
    "TENSOR": {
        "": "merge_tp_model_init_into_config record_tp_model_init_args",
        "module_inject": (
            "AutoTPConfig AutoTPPresets LinearAllreduce LinearLayer PartitionType ReplaceWithTensorSlicing SubParamLinearAllreduce "
            "SubParamLinearLayer TPLayerSpec merge_autotp_configs set_autotp_mode"
        ),
        "checkpoint.autoep_universal": (
            "_zero12_fragment_path consolidate_autoep_expert_files consolidate_autoep_zero12_expert_states "
            "make_folding_metadata validate_folding_metadata"
        ),
        "module_inject.auto_ep": "AutoEP _resolve_route_scale",
        "module_inject.auto_ep_config": (
            "AutoEPConfig MoELayerSpec PRESET_MODELS fill_autoep_config_from_hf parse_autoep_config "
            "validate_autoep_config validate_autoep_post_detection"
        ),
        "module_inject.auto_ep_folding": (
            "AUTOEP_FOLDING_GRAD_REDUCE_AVERAGE AUTOEP_FOLDING_GRAD_REDUCE_EXPERT_TP_CANCEL "
            "AUTOEP_FOLDING_GRAD_REDUCE_SKIP AUTOEP_FOLDING_GRAD_REDUCE_SUM FoldingGroupHandles "
            "FoldingGroupTables ParallelFoldingSpec assert_group_matches_spec "
            "autoep_folding_gradient_reduction_strategy build_folding_spec expected_folding_group_tables "
            "local_folding_ranks mark_autoep_folding_partial_router_parameter "
            "mark_autoep_folding_router_parameter mark_autoep_folding_sp_sharded_layernorm_parameter"
        ),
        "module_inject.auto_ep_layer": (
            "AutoEPMoELayer SplitPlan apply_scores_before_experts_if_enabled combine_from_routed "
            "compute_split_plan compute_split_plan_from_expert_indices resolve_score_apply_mode"
        ),
        "module_inject.auto_ep_preset_adapters": "get_preset_adapter",
        "module_inject.auto_ep_presets.base": "",
        "module_inject.auto_ep_presets.registry": "preset_name_for_hf_model_type unsupported_preset_for_hf_model_type",
        "module_inject.auto_tp": "AutoTP AutoTPConfig PartitionType TPLayerSpec",
        "module_inject.auto_tp_model_utils": ("build_bloom_alibi_tensor build_mpt_alibi_tensor get_alibi_mask install_head_sharded_helper"),
        "module_inject.autotp_config": "AutoTPConfig PartitionType",
        "module_inject.layers": (
            "GateUpPack_LinearLayer LinearAllreduce LinearLayer LmHeadLinearAllreduce SubParamLinearAllreduce "
            "SubParamLinearLayer Yuan_LinearAllreduce Yuan_LinearLayer _build_param_uc_restore_meta "
            "_get_param_uc_conversion_meta _subparam_shard_widths collect_autotp_universal_checkpoint_info "
            "fused_LinearLayer is_autotp_training_mode set_autotp_mode tp_model_init"
        ),
        "module_inject.replace_module": "replace_transformer_layer revert_transformer_layer",
        "module_inject.tp_plan_converter": "TPPlanConverter",
        "module_inject.tp_shard": "get_shard_size get_shard_size_list set_num_kv_heads set_tp_grain_size",
        "moe.ep_count": "",
        "moe.experts": "Experts",
        "moe.mappings": "drop_tokens gather_tokens",
        "moe.ep_experts": "GroupedExperts _run_experts_grouped_mm",
        "moe.ep_kernels": "",
        "moe.ep_repack": "repack_expert_weights",
        "moe.ep_router": "TokenChoiceTopKRouter",
        "moe.ep_tp_dispatch": (
            "RoutedAssignmentPayload assert_tp_payload_consistent assignment_ordinals_by_expert dispatch_counters "
            "partition_assignments restore_combined"
        ),
        "moe.fused_expert_layout": "classify_fused_gate_up_layout",
        "moe.sharded_moe": "_route_slots _sparse_decode _sparse_encode top1gating top2gating topkgating",
        "runtime.tensor_parallel.config": "_get_hf_tp_plan",
        "runtime.tensor_parallel": "AUTOTP_MODE TpTrainingManager get_tensor_parallel_config",
    },
    "KERNELS": {
        "ops.deepspeed4science": "DS4Sci_EvoformerAttention EvoformerFusedAttention",
        "ops.deepspeed4science.evoformer_attn": "DS4Sci_EvoformerAttention EvoformerFusedAttention",
        "ops.fp_quantizer": "FP_Quantize matmul_fp8 Quantizer",
        "ops.quantizer": "ds_quantizer",
        "ops.quantizer.quantizer": "ds_quantizer",
        "ops.sparse_attention": (
            "BertSparseSelfAttention SparseSelfAttention SparsityConfig FixedSparsityConfig SparseAttentionUtils "
            "BigBirdSparsityConfig BSLongformerSparsityConfig VariableSparsityConfig DenseSparsityConfig "
            "LocalSlidingWindowSparsityConfig"
        ),
        "ops.sparse_attention.matmul": "MatMul",
        "ops.sparse_attention.softmax": "Softmax",
        "ops.sparse_attention.bert_sparse_self_attention": "BertSparseSelfAttention",
        "ops.sparse_attention.sparse_attention_utils": "SparseAttentionUtils",
        "ops.sparse_attention.sparse_self_attention": "SparseSelfAttention",
        "ops.sparse_attention.sparsity_config": (
            "SparsityConfig FixedSparsityConfig BigBirdSparsityConfig BSLongformerSparsityConfig "
            "VariableSparsityConfig DenseSparsityConfig LocalSlidingWindowSparsityConfig"
        ),
        "ops.triton_ops": "is_triton_available group_gemm_triton swiglu tl triton",
        "ops.triton_ops.group_gemm_triton": "_GROUP_META_BLOCK _group_meta group_gemm_triton",
        "ops.triton_ops.swiglu_triton": "swiglu",
        "ops.sparse_attention.trsrc": "",
        "ops.pin_memory": "",
    },
    "COMPRESSED_COMM": {
        "runtime.comm.compressed": "CompressedBackend",
        "runtime.comm.mpi": "MpiBackend",
        "runtime.comm.nccl": "NcclBackend",
    },
    "GENERATION": {
        "runtime.hybrid_engine": "DeepSpeedHybridEngine",
        "runtime.hybrid_engine_graph": ("DecodeGraphCache decode_steps_from_generate_kwargs validate_cuda_graph_support"),
        "runtime.rollout": ("RolloutBatch RolloutEngine RolloutRequest SamplingConfig build_rollout HybridEngineRollout RolloutConfig"),
        "runtime.rollout.base": "RolloutConfig",
        "runtime.rollout.hybrid_engine_rollout": "HybridEngineRollout HybridEngineRolloutConfig",
    },
    "SEQUENCE": {
        "runtime.sequence_parallel.parallel_state_sp": "",
        "runtime.sequence_parallel.ulysses_sp": (
            "TiledFusedLogitsLoss TiledMLP UlyssesSPAttentionHF UlyssesSPDataLoaderAdapter sequence_tiled_compute"
        ),
        "compile.init_sp": "init_autosp",
        "compile.passes.long_context_checkpointing": "register_long_context_checkpointing",
        "compile.passes.sp_compile": "apply_autosp prepare_autosp_inputs",
        "sequence.auto_sp": "auto_wrap_model_for_sp",
        "sequence.autosp_fusion": "InternVLFusionAdapter LlavaFusionAdapter Qwen2VLFusionAdapter",
        "sequence.autosp_vit": "UlyssesSPViTAttention",
        "sequence.cross_entropy": "vocab_sequence_parallel_cross_entropy",
        "sequence.fpdt_layer": "FPDT_InputConstruct _FPDTGPUOffloadingAttentionImpl_",
        "sequence.layer": "DistributedAttention _SeqAllToAll",
        "sequence": (
            "InternVLFusionAdapter LlavaFusionAdapter ModalityFusionSPAdapter Qwen2VLFusionAdapter SPModelInfo "
            "UlyssesSPViTAttention auto_wrap_model_for_sp detect_model_sp_info"
        ),
    },
    "TOKENS": {
        "runtime.data_pipeline.data_routing.basic_layer": "RandomLayerTokenDrop",
        "runtime.data_pipeline.data_routing.helper": ("convert_to_random_ltd save_without_random_ltd remove_random_ltd_state_dict"),
        "ops.random_ltd": "GatherTokens ScatterTokens bert_sample_tokens gpt_sample_tokens",
    },
    "DATA": {
        "runtime.data_pipeline.data_sampling.data_analyzer": "DataAnalyzer DistributedDataAnalyzer",
        "runtime.data_pipeline.data_sampling.indexed_dataset": "MMapIndexedDataset MMapIndexedDatasetBuilder",
    },
    "PROFILING": {
        "profiling.config": "DeepSpeedFlopsProfilerConfig get_flops_profiler_config",
        "profiling.flops_profiler": "FlopsProfiler get_model_profile",
        "profiling.flops_profiler.profiler": (
            "FlopsProfiler get_model_profile flops_to_string macs_to_string number_to_string params_to_string duration_to_string"
        ),
    },
    "ELASTICITY": {
        "elasticity.elastic_agent": "DSElasticAgent",
        "elasticity.utils": "is_torch_elastic_compatible",
        "elasticity": "DSElasticAgent is_torch_elastic_compatible",
    },
    "MASTERS": {
        "utils": (
            "get_full_hp_grad get_full_hp_param get_hp_fragment_mapping lazy_init_hp_params_optimizer_state link_hp_params "
            "map_to_flat_opt_states set_full_hp_grad set_full_hp_param"
        ),
        "utils.mixed_precision_linkage": "link_hp_params lazy_init_hp_params_optimizer_state",
    },
    "MUON": {
        "": "set_optimizer_flags",
    },
    "SUPEROFFLOAD": {
        "runtime.superoffload.superoffload_stage3": "SuperOffloadOptimizer_Stage3",
    },
    "ZENFLOW": {
        "ops.adam": "ZenFlowCPUAdam",
    },
    "REST": {
        "runtime.activation_checkpointing.config": "DeepSpeedActivationCheckpointingConfig",
        "runtime.data_pipeline.data_sampling.data_sampler": "DeepSpeedDataSampler",
        "runtime.state_dict_factory": "SDLoaderFactory SDLoaderBase MegatronSDLoader",
        "runtime.swap_tensor.async_swapper": "AsyncTensorSwapper",
        "runtime.swap_tensor.optimizer_utils": "OptimizerSwapper OptimizerStateSwapInfo",
        "runtime.swap_tensor.partitioned_optimizer_swapper": "PartitionedOptimizerSwapper",
        "runtime.swap_tensor.partitioned_param_swapper": "AsyncPartitionedParameterSwapper PartitionedParamStatus",
        "runtime.swap_tensor.pipelined_optimizer_swapper": "PipelinedOptimizerSwapper",
        "runtime.zero.mics_utils": "MiCS_CommGroups create_mics_comm_groups scale_tensors",
        "runtime.zero.partitioned_param_coordinator": "PartitionedParameterCoordinator InflightParamRegistry",
        "runtime.data_pipeline.curriculum_scheduler": "CurriculumScheduler",
        "runtime.domino.transformer": "DominoTransformer DominoTransformerLayer",
        "runtime.quantize": "Quantizer",
        "runtime.zenflow.zenflow_utils": "_split_affinity",
        "runtime.zero.muon.original_muon": "muon_update",
    },
}


def find(fullname: str) -> tuple[str, dict[str, str]] | None:
    """Returns the way out of a module and those of its names; None where the table has neither it nor one below it."""
    wanted = fullname.removeprefix("deepspeed").removeprefix(".")
    way_out, names = None, {}
    for topic, modules in _NAMES.items():
        if wanted in modules or any(name.startswith(wanted + ".") for name in modules):
            way_out = way_out or _WAYS_OUT[topic]
        names.update(dict.fromkeys(modules.get(wanted, "").split(), _WAYS_OUT[topic]))
    return None if way_out is None else (way_out, names)


def refused_names() -> set[str]:
    """Returns the dotted names of the table, which refuse to be called."""
    return {
        ".".join(filter(None, ("deepspeed", module, name)))
        for modules in _NAMES.values()
        for module, names in modules.items()
        for name in names.split()
    }
