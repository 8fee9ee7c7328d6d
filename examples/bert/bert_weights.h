// A BERT's weights under the names and in the shapes of Hugging Face.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "deepspeed/tensor/named_tensor.h"

namespace bert {

class Bert;

/// Returns the tensors under the names of BertForMaskedLM: queries, keys and values of a DeepSpeed layer are
/// views of the rows of its attn_qkvw and attn_qkvb.
deepspeed::NamedTensors with_hugging_face_names(const deepspeed::NamedTensors& tensors);

/// Adds the bias of the scores again, under the name that Transformers takes where the decoder is not the
/// embedding.
void repeat_bias_of_decoder(deepspeed::NamedTensors& tensors);

/// Copies the weights of a folder, in one file or in shards, into the model. Returns the names of weights of
/// other heads, which are left out. Throws deepspeed::CheckpointError that lists what is missing, unknown or
/// of another shape; then nothing has changed.
std::vector<std::string> load_bert(Bert& model, const std::filesystem::path& folder);

}  // namespace bert
