// Reads the records of an uncompressed zip archive of torch.save and checks their checksums. torch's own
// reader is built without that check, so it does not notice a flipped bit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "deepspeed/checkpoint/file/file_reader.h"

namespace deepspeed::checkpoint {

class ZipReader {
 public:
  /// Opens the file and reads its directory. Throws IoError if it cannot be opened. Throws CheckpointError if
  /// it is not a complete zip archive, or does not match `sums`.
  explicit ZipReader(std::filesystem::path path, std::optional<FileSums> sums = std::nullopt);

  const std::filesystem::path& path() const { return file_.path(); }
  uint64_t bytes_read() const { return file_.bytes_read(); }
  /// Returns whether everything read is compared with the file's checksums.
  bool is_verified() const { return file_.is_verified(); }
  /// Frees the read-ahead buffer until the next read.
  void release() const { file_.release(); }
  /// Returns whether a record exists. Names are relative to the archive's top folder: "data.pkl", "data/0".
  bool has(const std::string& name) const { return records_.contains(name); }
  /// Returns the size of a record in bytes, at most the file's size. Throws CheckpointError if it does not
  /// exist.
  uint64_t size(const std::string& name) const { return find(name).size; }
  /// Reads a whole record into `destination` (`size(name)` bytes) and checks its checksum.
  void read(const std::string& name, void* destination) const;
  /// Reads `size` bytes from byte `offset` of a record. Throws CheckpointError if the record is shorter or
  /// altered. If the file's checksums are known, the bytes are compared with those. Otherwise only the whole
  /// record has a checksum. When parts are read in order from the beginning, the last part checks it; if
  /// parts are missing at the end, check_rest() does. For any other part the whole record is first read and
  /// checked, once.
  void read_part(const std::string& name, uint64_t offset, void* destination, uint64_t size) const;
  std::string read_text(const std::string& name) const;
  /// Reads the rest of records that were partly read. Throws CheckpointError if a checksum does not match.
  void check_rest() const;
  /// Turns off checksums for parts of records. Call it if another reader of the file has checked them.
  void trust() { is_trusted_ = true; }

 private:
  struct Record {
    std::string full_name;
    uint64_t header_offset = 0;
    uint64_t size = 0;
    uint32_t crc = 0;
    mutable uint64_t data_offset = 0;  // 0 until read from the local header
  };
  struct Directory {
    uint64_t offset = 0;
    uint64_t size = 0;
    uint64_t num_entries = 0;
  };

  const Record& find(const std::string& name) const;
  Directory find_directory() const;
  void read_directory();
  Record parse_entry(const std::string& directory, size_t& cursor) const;
  uint64_t data_offset(const Record& record) const;
  void compare(const Record& record, uint32_t crc) const;
  /// Reads a record from `offset` to its end and checks its checksum. `crc` is the checksum of the record's
  /// earlier bytes.
  void check_from(const Record& record, uint64_t offset, uint32_t crc) const;

  FileReader file_;
  std::map<std::string, Record> records_;
  struct Progress {
    uint64_t next = 0;
    uint32_t crc = 0;
    bool is_checked = false;
  };
  mutable std::map<std::string, Progress> progress_;  // of records that are read in parts
  bool is_trusted_ = false;
};

/// Throws CheckpointError if the archive's byte order is not this machine's.
void check_byte_order(const ZipReader& zip);

}  // namespace deepspeed::checkpoint
