// This reader reads the records of an uncompressed zip archive, as torch.save writes it. torch's own reader
// does not compare the records' checksums (it is built without that check), so a flipped bit would pass; this
// one compares them.
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
  /// Opens the file and reads its directory. Throws IoError where it cannot be opened, CheckpointError where
  /// it is not a whole zip archive, or does not match `sums`.
  explicit ZipReader(std::filesystem::path path, std::optional<FileSums> sums = std::nullopt);

  const std::filesystem::path& path() const { return file_.path(); }
  uint64_t bytes_read() const { return file_.bytes_read(); }
  /// Says whether all that is read is compared with the file's sums.
  bool is_verified() const { return file_.is_verified(); }
  /// Frees the memory that holds bytes read ahead.
  void release() const { file_.release(); }
  /// Says whether there is a record of that name. Names are relative to the archive's top folder: "data.pkl",
  /// "data/0".
  bool has(const std::string& name) const { return records_.contains(name); }
  /// Returns the bytes of a record, never more than the file has. Throws CheckpointError where there is no
  /// such record.
  uint64_t size(const std::string& name) const { return find(name).size; }
  /// Reads a whole record into `destination` (`size(name)` bytes) and checks its checksum.
  void read(const std::string& name, void* destination) const;
  /// Reads `size` bytes of a record from `offset` on, and compares them with the file's sums where there are
  /// some. Else the record has one checksum: where the parts come one after the other from its beginning, the
  /// last one compares it, and check_rest() does where they end before; for another part the whole record is
  /// read and compared first, once.
  void read_part(const std::string& name, uint64_t offset, void* destination, uint64_t size) const;
  std::string read_text(const std::string& name) const;
  /// Reads what is left of records that were begun in parts, and compares their checksums.
  void check_rest() const;
  /// Compares no more parts of records: somebody else has.
  void trust() { is_trusted_ = true; }

 private:
  struct Record {
    std::string full_name;
    uint64_t header_offset = 0;
    uint64_t size = 0;
    uint32_t crc = 0;
    mutable uint64_t data_offset = 0;  // 0: not read yet; later parts do not go back to the header
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
  /// Reads a record from `offset` on, whose bytes before have the checksum `crc`, and compares the whole.
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

/// Throws CheckpointError where the archive's byte order is not this machine's.
void check_byte_order(const ZipReader& zip);

}  // namespace deepspeed::checkpoint
