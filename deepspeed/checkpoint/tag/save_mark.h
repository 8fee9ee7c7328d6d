// Each file that a save writes has a mark, beside its content: which save it is of, and which of its files.
// Files of two saves, or of two ranks, that changed places are so told apart, also without a manifest.
#pragma once

#include <cstdint>
#include <string>

namespace deepspeed::checkpoint {

struct SaveMark {
  std::string save;   // is common to all files of a save, and to no others
  std::string file;   // its name inside of the tag's folder: "mp_rank_00_model_states.pt"
  int64_t steps = 0;  // that the training had taken
  int64_t ranks = 0;  // that saved
};

/// Makes the name of a new save: 32 digits that no other one has.
std::string new_save();

std::string to_text(const SaveMark& mark);
/// Reads a mark. Throws CheckpointError where the text is none.
SaveMark parse_mark(const std::string& text);

}  // namespace deepspeed::checkpoint
