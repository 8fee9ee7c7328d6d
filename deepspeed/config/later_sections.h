// Documented sections whose features do not exist yet: their keys are read and checked, and what would turn a
// feature on is refused. A feature that comes moves its section into a file and a struct of its own.
#pragma once

#include <vector>

#include "deepspeed/config/field.h"

namespace deepspeed::config {

/// data_types, amp, torch_autocast.
std::vector<Field> later_precision_sections();
/// Monitors, profilers, timers, memory: what watches a run.
std::vector<Field> later_monitor_sections();
/// Activation checkpointing, AIO, pipeline, tensor and expert parallelism, compile, hybrid engine, sparse
/// attention.
std::vector<Field> later_parallel_sections();
/// Elasticity, autotuning, curricula, data efficiency: what changes the course of a training.
std::vector<Field> later_training_sections();
/// Compression and quantisation of the model.
std::vector<Field> later_compression_sections();

/// All of them.
std::vector<Field> later_sections();

/// The switch of a section that has one.
Field enabled_switch();

}  // namespace deepspeed::config
