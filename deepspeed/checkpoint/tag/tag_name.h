// Defines which texts can name a tag. A tag is a folder next to `latest` with a plain name.
#pragma once

#include <string>

namespace deepspeed::checkpoint {

/// Returns whether a file next to the tags has this name. Such files are `latest`, `latest_universal` and
/// `zero_to_fp32.py`.
bool is_name_beside_tags(const std::string& name);
/// Returns whether a file next to the tags is written under this name: "latest.17.tmp".
bool is_temporary_beside_tags(const std::string& name);

/// Throws UsageError, giving the reason, if the text cannot name a tag. Such a text leads into another
/// folder, is a reserved or temporary name, or does not survive a round trip through `latest`.
void require_tag_name(const std::string& tag);
/// Throws UsageError if the text is not a path to a subfolder. DeepSpeed also writes tags of several parts,
/// "epoch/5". `tag` is not empty.
void require_tag_inside(const std::string& tag);

}  // namespace deepspeed::checkpoint
