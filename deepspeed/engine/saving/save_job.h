// A job is the part of saving that needs no engine: from captured content to a tag that is named by `latest`.
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
  std::string save;  // the name that all its files are marked with
  bool save_latest = true;
  bool in_turn = false;                   // the training's own tag of its step
  std::optional<int64_t> keep_last = {};  // of such tags; nothing: all
  bool writes_script = false;             // zero_to_fp32.py beside `latest`, as DeepSpeed has it
  io::WriterOptions writer = {};
  int64_t num_writers = 1;  // files at once
  bool show_statistics = false;
  int local_rank = 0;
  std::vector<std::string> file_names = {};  // of this rank
  std::vector<checkpoint::ArchiveContent> contents = {};
  checkpoint::StagingLock lock = {};  // of the folder that is filled, on rank 0
  /// On rank 0: learns which tags this process has saved, of which no other job has one.
  std::shared_ptr<checkpoint::FolderWriter> folder_writer = nullptr;

  /// Writes the tag: all ranks of `group` call it, after checkpoint::begin_tag() on rank 0. Where one fails
  /// all throw, what was written goes, and the tags before stay as they were.
  void run(const comm::ProcessGroup& group);
  /// Removes what this machine has written.
  void abandon() const;

 private:
  checkpoint::Manifest write_files(const checkpoint::Folder& staging) const;
  void publish(const comm::ProcessGroup& group, const checkpoint::Manifest& written) const;
  void write_script() const;
  void prune(const comm::ProcessGroup& group) const;
  void report(int rank, double seconds) const;
};

}  // namespace deepspeed
