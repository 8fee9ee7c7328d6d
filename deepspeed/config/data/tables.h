// The tables of the sections of this folder, each in the file of its section.
#pragma once

#include "deepspeed/config/data/sections.h"
#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

const Table<CurriculumLearningConfig>& curriculum_learning_table();
const Table<DataEfficiencyConfig>& data_efficiency_table();
const Table<ProgressiveLayerDropConfig>& progressive_layer_drop_table();
const Table<EigenvalueConfig>& eigenvalue_table();
const Table<CompressionTrainingConfig>& compression_training_table();
const Table<WeightQuantizationConfig>& weight_quantization_table();

}  // namespace deepspeed::config
