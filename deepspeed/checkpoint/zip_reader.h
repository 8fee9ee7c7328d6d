// Reads the records of an uncompressed zip archive, as torch.save writes it. torch's own reader does not
// compare the records' checksums (it is built without that check), so a flipped bit would pass; this one
// compares them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace deepspeed::checkpoint {

class ZipReader {
 public:
  /// Opens the file and reads its directory. Throws IoError where it cannot be opened, CheckpointError where
  /// it is not a whole zip archive.
  explicit ZipReader(std::filesystem::path path);
  ~ZipReader();
  ZipReader(const ZipReader&) = delete;
  ZipReader& operator=(const ZipReader&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Names are relative to the archive's top folder: "data.pkl", "data/0".
  bool has(const std::string& name) const { return records_.contains(name); }
  /// Bytes of a record, never more than the file has. Throws CheckpointError where there is no such record.
  uint64_t size(const std::string& name) const { return find(name).size; }
  /// Reads a whole record into `destination` (`size(name)` bytes) and checks its checksum.
  void read(const std::string& name, void* destination) const;
  std::string read_text(const std::string& name) const;

 private:
  struct Record {
    std::string full_name;
    uint64_t header_offset = 0;
    uint64_t size = 0;
    uint32_t crc = 0;
  };
  struct Directory {
    uint64_t offset = 0;
    uint64_t size = 0;
    uint64_t num_entries = 0;
  };

  const Record& find(const std::string& name) const;
  void read_at(uint64_t offset, void* destination, uint64_t size) const;
  Directory find_directory() const;
  void read_directory();
  Record parse_entry(const std::string& directory, size_t& cursor) const;
  uint64_t data_offset(const Record& record) const;

  std::filesystem::path path_;
  int file_ = -1;
  uint64_t file_size_ = 0;
  std::map<std::string, Record> records_;
};

}  // namespace deepspeed::checkpoint
