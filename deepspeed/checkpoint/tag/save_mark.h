// Marks each saved file with its save and its name. The mark reveals files of two saves in one folder, and
// files that changed places, even without a manifest.
#pragma once

#include <cstdint>
#include <string>

namespace deepspeed::checkpoint {

struct SaveMark {
  std::string save;   // common to all files of a save, unique to it
  std::string file;   // name inside the tag's folder: "mp_rank_00_model_states.pt"
  int64_t steps = 0;  // taken by the training
  int64_t ranks = 0;  // number of ranks that saved
};

/// Returns a unique name for a new save, of 32 hexadecimal digits.
std::string new_save();

std::string to_text(const SaveMark& mark);
/// Parses a mark. Throws CheckpointError if the text is not a mark.
SaveMark parse_mark(const std::string& text);

}  // namespace deepspeed::checkpoint
