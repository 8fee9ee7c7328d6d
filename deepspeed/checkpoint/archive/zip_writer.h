// This writer writes the uncompressed zip archives of torch.save: each record on a multiple of 64 bytes,
// 64-bit sizes where they are needed. As in torch's files, a record's sizes and checksum stand behind it and
// in the directory, so that its bytes need be passed over once. Format: PKWARE's APPNOTE 6.3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace deepspeed::checkpoint {

class ZipWriter {
 public:
  /// Takes the bytes in order, and returns their CRC-32.
  using Sink = std::function<uint32_t(const void* data, size_t size)>;

  /// Begins an archive. `folder`: its top folder, of which all records are.
  ZipWriter(std::string folder, Sink sink) : folder_(std::move(folder)), sink_(std::move(sink)) {}

  void add(const std::string& name, const void* data, uint64_t size);
  /// Takes a piece of a record's bytes.
  using PieceSink = std::function<void(const void* data, size_t size)>;
  void add(const std::string& name, uint64_t size, const std::function<void(const PieceSink&)>& give);
  /// Writes the directory and ends the archive; nothing can be added afterwards.
  void finish();

 private:
  struct Entry {
    std::string name;
    uint64_t offset = 0;
    uint64_t size = 0;
    uint32_t crc = 0;
  };

  void write(const std::string& bytes);

  std::string folder_;
  Sink sink_;
  uint64_t position_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace deepspeed::checkpoint
