// Writes a zip archive in one pass, without going back.
//
// add() writes a local header, padding to a multiple of 64 bytes, and the record's bytes. The padding is in a
// part of the header that readers skip, as in torch. The record's checksum and sizes follow it, because they
// are not known earlier. finish() writes the directory with one entry per record, the 64-bit end record, and
// the end record. Numbers that do not fit into 32 bits are in the 64-bit part of their entry. All dates are
// constant, so that equal content makes equal files.
#include "deepspeed/checkpoint/archive/zip_writer.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/file/crc32.h"

namespace deepspeed::checkpoint {
namespace {

constexpr uint64_t kRecordAlignment = 64;
constexpr uint64_t kMax32 = 0xFFFFFFFF;
constexpr uint64_t kMax16 = 0xFFFF;
constexpr uint16_t kVersion = 45;                  // the first with 64-bit sizes
constexpr uint16_t kFlags = (1 << 11) | (1 << 3);  // UTF-8 names; sizes and checksum after the record
constexpr uint16_t kDate = (1 << 5) + 1;  // 1 January 1980, constant so that equal content makes equal files
constexpr uint16_t kZip64Part = 1;
constexpr uint16_t kPaddingPart = 0x4246;  // "FB", as in torch

/// Appends little-endian fields.
class FieldWriter {
 public:
  std::string bytes;

  FieldWriter& u16(uint64_t value) { return number(value, 2); }
  FieldWriter& u32(uint64_t value) { return number(value, 4); }
  FieldWriter& u64(uint64_t value) { return number(value, 8); }
  /// Appends 32 bits. They are all ones if the number needs 64 bits, which zip64_part() then writes.
  FieldWriter& u32_or_64(uint64_t value) { return u32(std::min(value, kMax32)); }
  FieldWriter& text(const std::string& value) {
    bytes += value;
    return *this;
  }

 private:
  FieldWriter& number(uint64_t value, int size) {
    for (int byte = 0; byte < size; ++byte) bytes += char(value >> (8 * byte));
    return *this;
  }
};

/// Returns an entry's zip64 field with those of `values` that exceed 32 bits. It is empty if all fit.
std::string zip64_part(const std::vector<uint64_t>& values) {
  FieldWriter fields;
  for (const uint64_t value : values) {
    if (value >= kMax32) fields.u64(value);
  }
  if (fields.bytes.empty()) return {};
  return FieldWriter().u16(kZip64Part).u16(fields.bytes.size()).text(fields.bytes).bytes;
}

}  // namespace

void ZipWriter::write(const std::string& bytes) {
  sink_(bytes.data(), bytes.size());
  position_ += bytes.size();
}

void ZipWriter::add(const std::string& name, const void* data, uint64_t size) {
  add(name, size, [&](const PieceSink& sink) { sink(data, size); });
}

void ZipWriter::add(const std::string& name, uint64_t size,
                    const std::function<void(const PieceSink&)>& give) {
  Entry entry{folder_ + "/" + name, position_, size};
  const bool is_large = size >= kMax32;
  // The 64-bit part tells readers how wide the sizes behind the record are. Its own two sizes stay 0.
  std::string extra = is_large ? FieldWriter().u16(kZip64Part).u16(16).u64(0).u64(0).bytes : "";
  const uint64_t data_begin = position_ + 30 + entry.name.size() + extra.size() + 4;
  const uint64_t padding = (kRecordAlignment - data_begin % kRecordAlignment) % kRecordAlignment;
  extra += FieldWriter().u16(kPaddingPart).u16(padding).text(std::string(padding, 'Z')).bytes;
  write(FieldWriter()
            .u32(0x04034b50)
            .u16(kVersion)
            .u16(kFlags)
            .u16(0)  // stored, not compressed
            .u16(0)
            .u16(kDate)
            .u32(0)
            .u32(is_large ? kMax32 : 0)
            .u32(is_large ? kMax32 : 0)
            .u16(entry.name.size())
            .u16(extra.size())
            .text(entry.name)
            .text(extra)
            .bytes);
  const uint64_t begin = position_;
  give([&](const void* data, size_t piece_size) {
    entry.crc = combine_crc32(entry.crc, sink_(data, piece_size), piece_size);
    position_ += piece_size;
  });
  if (position_ - begin != size)
    raise<CheckpointError>("the record '", name, "' of ", size, " bytes came with ", position_ - begin);
  FieldWriter behind;
  behind.u32(0x08074b50).u32(entry.crc);
  write(is_large ? behind.u64(size).u64(size).bytes : behind.u32(size).u32(size).bytes);
  entries_.push_back(std::move(entry));
}

void ZipWriter::finish() {
  const uint64_t begin = position_;
  for (const Entry& entry : entries_) {
    const std::string extra = zip64_part({entry.size, entry.size, entry.offset});
    write(FieldWriter()
              .u32(0x02014b50)
              .u16(kVersion)
              .u16(kVersion)
              .u16(kFlags)
              .u16(0)
              .u16(0)
              .u16(kDate)
              .u32(entry.crc)
              .u32_or_64(entry.size)
              .u32_or_64(entry.size)
              .u16(entry.name.size())
              .u16(extra.size())
              .u16(0)  // no comment
              .u16(0)  // the only disk
              .u16(0)
              .u32(0)
              .u32_or_64(entry.offset)
              .text(entry.name)
              .text(extra)
              .bytes);
  }
  const uint64_t end = position_, size = end - begin, count = entries_.size();
  // The 64-bit end record is always written, as in torch.
  write(FieldWriter()
            .u32(0x06064b50)
            .u64(44)
            .u16(kVersion)
            .u16(kVersion)
            .u32(0)
            .u32(0)
            .u64(count)
            .u64(count)
            .u64(size)
            .u64(begin)
            .bytes);
  write(FieldWriter().u32(0x07064b50).u32(0).u64(end).u32(1).bytes);
  write(FieldWriter()
            .u32(0x06054b50)
            .u16(0)
            .u16(0)
            .u16(std::min(count, kMax16))
            .u16(std::min(count, kMax16))
            .u32_or_64(size)
            .u32_or_64(begin)
            .u16(0)
            .bytes);
}

}  // namespace deepspeed::checkpoint
