// Compares each file with those opened before: the mark of its save, and the ranks and steps in its content.
// check_rest() reads what no load has read.
#include "deepspeed/checkpoint/sources/tag_archives.h"

#include <algorithm>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/archive/zip_reader.h"
#include "deepspeed/checkpoint/tag/layout.h"

namespace deepspeed::checkpoint {
namespace {

using std::filesystem::path;
constexpr const char* kWayOut = "; put back the files of one save, or load another tag";

/// Returns the integer under `key`; nothing if it is absent or no integer.
std::optional<int64_t> number_at(const Dict& dict, const std::string& key) {
  const Value* value = dict.find(key);
  const auto* number = value == nullptr ? nullptr : value->get_if<int64_t>();
  return number == nullptr ? std::nullopt : std::optional(*number);
}

const Dict* dict_at(const Dict& dict, const char* key) {
  const Value* value = dict.find(key);
  return value == nullptr ? nullptr : value->get_if<Dict>();
}

/// Returns the largest step count in a rank's part of the optimizer, or 0.
int64_t steps_of(const Dict& optimizer) {
  const Dict* base = dict_at(optimizer, "base_optimizer_state");
  if (base == nullptr) base = dict_at(optimizer, "optimizer_state_dict");
  const Dict* states = base == nullptr ? nullptr : dict_at(*base, "state");
  int64_t steps = 0;
  if (states == nullptr) return steps;
  for (const auto& [key, value] : states->items()) {
    const auto* state = value.get_if<Dict>();
    const Value* step = state == nullptr ? nullptr : state->find("step");
    if (step == nullptr || step->is_none()) continue;
    const auto* tensor = step->get_if<at::Tensor>();
    if (tensor == nullptr || (tensor->dim() == 0 && !tensor->is_meta()))
      steps = std::max(steps, step->as_int());
  }
  return steps;
}

/// Returns the mark of a file; nothing if it has none or cannot be read. A reader that needs the file then
/// reports the reason.
std::optional<SaveMark> mark_of(const path& file) {
  try {
    const ZipReader zip(file);
    return zip.has(kMarkRecord) ? std::optional(parse_mark(zip.read_text(kMarkRecord))) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string text_of(const SaveMark& mark) {
  return message("step ", mark.steps, " of ", mark.ranks, " ranks");
}

}  // namespace

TagArchives::TagArchives(path folder) : TagArchives(std::move(folder), Options()) {}

TagArchives::TagArchives(path folder, const Options& options)
    : folder_(std::move(folder)), options_(options), manifest_(read_manifest(folder_)) {
  if (options_.looks_around && manifest_.files.empty()) look_around();
}

void TagArchives::look_around() const {
  std::vector<path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    if (is_checkpoint_file(entry.path().filename().string())) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  for (const path& file : files) {
    if (const auto mark = mark_of(file)) compare_mark(file, *mark);
  }
}

std::shared_ptr<DeferredArchive> TagArchives::open(const path& file) const {
  auto archive = std::make_shared<DeferredArchive>(file, manifest_.sums_of(file, folder_));
  if (options_.trusts) archive->trust();
  compare(file, *archive);
  open_.push_back(archive);
  return archive;
}

void TagArchives::compare(const path& file, const DeferredArchive& archive) const {
  if (const auto text = archive.mark()) {
    try {
      compare_mark(file, parse_mark(*text));
    } catch (const CheckpointError& error) {
      const std::string what = error.what();
      if (what.find(file.string()) != std::string::npos) throw;
      raise<CheckpointError>(file, ": ", what);
    }
  } else {
    if (!without_mark_) without_mark_ = file;
    compare_claims(file, archive.value());
  }
  if (manifest_.files.empty() && first_ && without_mark_) warn_of_mixture(*without_mark_);
}

void TagArchives::compare_mark(const path& file, const SaveMark& mark) const {
  const std::string name = file.lexically_relative(folder_).generic_string();
  if (mark.file != name) {
    raise<CheckpointError>(file, " was saved as '", mark.file, "' (", text_of(mark),
                           "): it was renamed, or two files changed places", kWayOut);
  }
  if (!first_) {
    first_ = {file, mark};
    if (!manifest_.files.empty() || !options_.looks_around) return;
    log::warning(
        "[checkpoint] ", manifest_path(folder_),
        " is missing, though it was saved with the tag: each file's own mark and checksums are checked, but "
        "files that are gone and bytes between the records go unnoticed");
    return;
  }
  if (mark.save == first_->mark.save) return;
  raise<CheckpointError>(file, " is from another save than ", first_->file.filename(), ": from ",
                         text_of(mark), ", that one from ", text_of(first_->mark), kWayOut);
}

void TagArchives::warn_of_mixture(const path& file) const {
  if (!std::exchange(has_warned_, true) && options_.looks_around) {
    log::warning("[checkpoint] ", file, " has no mark of a save, which ", first_->file.filename(),
                 " beside it has, and there is no manifest: it is not known whether both are from one save");
  }
}

void TagArchives::compare_claims(const path& file, const Value& value) const {
  const auto* dict = value.get_if<Dict>();
  if (dict == nullptr) return;
  const bool is_model = dict->find("module") != nullptr && dict->find("global_steps") != nullptr;
  for (const char* key :
       {"global_steps", "global_samples", "skipped_steps", "dp_world_size", "mp_world_size"}) {
    const auto number = is_model ? number_at(*dict, key) : std::nullopt;
    if (number) compare_claim(file, key, *number);
  }
  const Dict* optimizer = is_model ? nullptr : dict_at(*dict, "optimizer_state_dict");
  if (optimizer == nullptr) return;
  if (const int64_t steps = steps_of(*optimizer); steps > 0)
    compare_claim(file, "steps of the optimizer", steps);
}

void TagArchives::compare_claim(const path& file, const std::string& what, int64_t value) const {
  const auto [first, is_new] = claims_.try_emplace(what, Claim{file, value});
  if (is_new || first->second.value == value) return;
  raise<CheckpointError>(file, " says ", value, " of '", what, "', ", first->second.file.filename(), " ",
                         first->second.value, ": they are of two saves", kWayOut);
}

void TagArchives::check_rest() const {
  for (const auto& archive : open_) {
    if (const auto held = archive.lock()) held->check_rest();
  }
}

void TagArchives::verify() const {
  for (const auto& archive : open_) {
    if (const auto held = archive.lock(); held && !held->is_verified()) held->verify();
  }
}

std::string TagArchives::identity() const {
  if (first_) return message(text_of(first_->mark), ", save ", first_->mark.save);
  const auto steps = claims_.find("global_steps");
  return steps == claims_.end() ? "" : message("step ", steps->second.value);
}

}  // namespace deepspeed::checkpoint
