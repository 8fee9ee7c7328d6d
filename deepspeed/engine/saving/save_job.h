// A job is the part of saving that needs no engine: it takes captured contents and ends with a tag that
// `latest` names.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/tag/folder_writers.h"
#include "deepspeed/checkpoint/tag/manifest.h"
#include "deepspeed/checkpoint/tag/tag_folder.h"
#include "deepspeed/comm/group/process_group.h"

namespace deepspeed {

struct SaveJob {
  std::string directory;
  std::string tag;
  std::string save;  // the id that marks all files of this save
  bool save_latest = true;
  bool in_turn = false;                   // the tag is the default one of its step, and `latest` will name it
  std::optional<int64_t> keep_last = {};  // number of such tags to keep; nothing: all
  bool writes_script = false;             // zero_to_fp32.py next to `latest`, as DeepSpeed writes it
  io::WriterOptions writer = {};
  int64_t num_writers = 1;  // files written at once
  bool show_statistics = false;
  int local_rank = 0;
  std::vector<std::string> file_names = {};  // of this rank
  std::vector<checkpoint::ArchiveContent> contents = {};
  checkpoint::StagingLock lock = {};  // of the staging folder, on rank 0
  /// Shows other jobs, on rank 0, that this process saves into the directory. Also records the saved tag,
  /// which this process may then replace.
  std::shared_ptr<checkpoint::FolderWriter> folder_writer = nullptr;

  /// Writes the tag. Collective over `group`, after checkpoint::begin_tag() on rank 0. If one rank fails all
  /// throw, the new files are removed, and earlier tags stay as they were.
  void run(const comm::ProcessGroup& group);
  /// Removes the tag's unfinished folder, with what this machine has written.
  void abandon() const;

 private:
  checkpoint::Manifest write_files(const checkpoint::Folder& staging) const;
  void publish(const comm::ProcessGroup& group, const checkpoint::Manifest& written) const;
  void write_script() const;
  void prune(const comm::ProcessGroup& group) const;
  void report(int rank, double seconds) const;
};

}  // namespace deepspeed
