#include "deepspeed/engine/saving/save_job.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/convert/zero_to_fp32_script.h"
#include "deepspeed/checkpoint/file/atomic_file.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/comm/on_all_ranks.h"

namespace deepspeed {

void SaveJob::run(const comm::ProcessGroup& group) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    checkpoint::Manifest written;
    comm::on_all_ranks<CheckpointError>(
        group, "saving", [&] { written = write_files(checkpoint::open_staging(directory, tag)); });
    publish(group, written);
    lock = {};  // the folder has its final name
  } catch (...) {
    abandon();
    throw;
  }
  // `latest` names the tag only when every rank's files are there.
  comm::on_all_ranks<CheckpointError>(group, "saving", [&] {
    if (save_latest && group.rank() == 0) checkpoint::write_latest(directory, tag);
  });
  if (writes_script && group.rank() == 0) write_script();
  log::info("saved checkpoint ", directory, "/", tag);
  prune(group);
  if (show_statistics)
    report(group.rank(), std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

void SaveJob::abandon() const {
  if (local_rank == 0) checkpoint::abandon_tag(directory, tag);
}

void SaveJob::write_script() const {
  try {
    checkpoint::write_zero_to_fp32_script(directory);
  } catch (const std::exception& error) {  // the checkpoint itself is complete
    log::warning("[checkpoint] ", checkpoint::zero_to_fp32_script_path(directory),
                 " is not written: ", error.what());
  }
}

void SaveJob::report(int rank, double seconds) const {
  uint64_t bytes = 0;
  for (const checkpoint::ArchiveContent& content : contents) bytes += content.num_bytes();
  log::info("[checkpoint] rank ", rank, " wrote ", contents.size(), " files of ", bytes, " bytes in ",
            seconds, " s, ", double(bytes) / 1e9 / seconds, " GB/s, durable");
}

/// Writes this rank's files on num_writers threads, and returns their checksums.
checkpoint::Manifest SaveJob::write_files(const checkpoint::Folder& staging) const {
  checkpoint::Manifest written;
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    for (size_t index = next++; index < contents.size(); index = next++) {
      try {
        checkpoint::AtomicFile file(staging, file_names[index], writer);
        auto sums = checkpoint::write_archive_content(file, contents[index]);
        const std::lock_guard lock_of_results(mutex);
        written.files[file_names[index]] = std::move(sums);
      } catch (...) {
        const std::lock_guard lock_of_results(mutex);
        if (!failure) failure = std::current_exception();
        next = contents.size();
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (int64_t writer_index = 1; writer_index < num_writers && writer_index < int64_t(contents.size());
         ++writer_index) {
      others.emplace_back(work);
    }
    work();
  }
  if (failure) std::rethrow_exception(failure);
  return written;
}

void SaveJob::publish(const comm::ProcessGroup& group, const checkpoint::Manifest& written) const {
  checkpoint::Manifest all;
  all.in_turn = in_turn;
  for (const std::string& text : group.all_gather_text(checkpoint::to_text(written)))
    all.files.merge(checkpoint::parse_manifest(text).files);
  // Rank 0 is first. If all machines share the file system, it leaves nothing for the others.
  for (const bool is_first : {true, false}) {
    comm::on_all_ranks<CheckpointError>(group, "saving", [&] {
      if ((group.rank() == 0) != is_first || local_rank != 0) return;
      const auto staging = checkpoint::Folder(directory).find(checkpoint::staging_tag(tag));
      if (!staging) return;
      checkpoint::Manifest here = all;
      std::erase_if(here.files, [&](const auto& file) { return !staging->has(file.first); });
      checkpoint::remove_unlisted(*staging, here);
      checkpoint::write_manifest(*staging, here);
      checkpoint::publish_tag(directory, tag);
      if (folder_writer) folder_writer->note_saved(tag);
    });
  }
}

void SaveJob::prune(const comm::ProcessGroup& group) const {
  if (!keep_last || !in_turn) return;
  for (const bool is_first : {true, false}) {  // as in publish()
    comm::on_all_ranks<CheckpointError>(group, "saving", [&] {
      if ((group.rank() == 0) != is_first || local_rank != 0) return;
      try {
        checkpoint::prune_tags(directory, tag, *keep_last);
      } catch (const std::exception& error) {  // the checkpoint itself is complete
        log::warning("[checkpoint] older tags are left in ", directory, ": ", error.what());
      }
    });
  }
}

}  // namespace deepspeed
