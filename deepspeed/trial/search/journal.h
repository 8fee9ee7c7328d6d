// The journal of a search: a file of events that a search is restored from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "deepspeed/base/descriptor.h"
#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::trial {

/// Appends entries to a file, one a line, and keeps the file locked. A line is {"sum":"HEX","entry":ENTRY}.
/// Its sum is FNV-1a (base/hash.h) of the previous line's sum and the text of ENTRY, so a missing line is
/// noticed too. The first line's entry holds the format's version, the experiment's digest and the seed.
class DEEPSPEED_API Journal {
 public:
  /// Opens a journal, or begins one. An unfinished last line, which a killed process leaves, is removed.
  /// Throws IoError, naming the file, if it is a symbolic link, no regular file, another user's, or open in
  /// another process, and for a damaged line, naming it. Throws UsageError if the file is no journal, or
  /// belongs to another experiment, seed or version of the format.
  Journal(std::filesystem::path file, const std::string& experiment_digest, uint64_t seed);

  /// Returns the entries that were there when the journal was opened.
  const std::vector<Json>& entries() const { return entries_; }

  /// Appends an entry, and returns when it is on the disk. Throws IoError if it cannot be written. It is then
  /// taken back and may be tried again. If that fails, or the file's state is unknown, each further call
  /// throws.
  void append(const Json& entry);

  const std::filesystem::path& file() const { return file_; }

 private:
  void read(const std::string& bytes, const Json& header);
  Json entry_of(std::string_view line, size_t number);
  void require_header(const Json& found, const Json& expected) const;
  [[noreturn]] void fail_format() const;
  [[noreturn]] void fail_line(size_t number, const char* what) const;
  [[noreturn]] void fail_write(const char* action, int error);

  std::filesystem::path file_;
  Descriptor descriptor_;
  std::vector<Json> entries_;
  uint64_t sum_ = 0;      // of the last line
  uint64_t size_ = 0;     // bytes of whole lines
  bool is_lost_ = false;  // the file may hold something else than whole lines
};

}  // namespace deepspeed::trial
