// A tag is one folder beside `latest`, under a plain name; this says which texts can name one.
#pragma once

#include <string>

namespace deepspeed::checkpoint {

/// Says whether a file of ours beside the tags has that name: `latest`, `latest_universal`,
/// `zero_to_fp32.py`.
bool is_name_beside_tags(const std::string& name);
/// Says whether a file of ours beside the tags has that name while it is written: "latest.17.tmp".
bool is_temporary_beside_tags(const std::string& name);

/// Throws UsageError, saying why, where the text can name no tag: it leads into another folder, is a name of
/// ours or of what is not finished, or does not come back from `latest` as it is.
void require_tag_name(const std::string& tag);
/// Throws UsageError where the text is no path to a folder below the one that it is looked for in. DeepSpeed
/// also writes tags of several parts, "epoch/5". `tag` is not empty.
void require_tag_inside(const std::string& tag);

}  // namespace deepspeed::checkpoint
