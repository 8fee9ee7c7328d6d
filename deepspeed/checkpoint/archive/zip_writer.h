// Writes the uncompressed zip archives of torch.save, with records aligned to 64 bytes. Sizes take 64 bits
// only if needed. As in torch's files, a record's sizes and checksum follow it and are repeated in the
// directory, so that its bytes are read only once. Format: PKWARE's APPNOTE 6.3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace deepspeed::checkpoint {

class ZipWriter {
 public:
  /// Receives the archive's bytes in order. Returns the CRC-32 of only the bytes of this call.
  using Sink = std::function<uint32_t(const void* data, size_t size)>;

  /// Begins an archive. All records are in the top folder `folder`.
  ZipWriter(std::string folder, Sink sink) : folder_(std::move(folder)), sink_(std::move(sink)) {}

  void add(const std::string& name, const void* data, uint64_t size);
  /// Receives a piece of a record's bytes.
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
