// Reads a zip archive from its end, trusting no number in it.
//
// The constructor finds the end record at the end of the file. The end record, or the 64-bit one if it
// exists, leads to the directory (find_directory). Then the constructor parses each entry of the directory
// (read_directory, parse_entry). Every offset and size is compared with the file's size before it is used,
// and all records together have to fit into the file. A changed byte can therefore not demand more memory
// than the file has bytes. A record's local header is read when its data is first requested (data_offset).
// read() and read_part() check the CRC-32 of what they return.
#include "deepspeed/checkpoint/archive/zip_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/file/crc32.h"

namespace deepspeed::checkpoint {
namespace {

constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint32_t kEntrySignature = 0x02014b50;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocator64Signature = 0x07064b50;
constexpr uint64_t kLocalSize = 30;
constexpr uint64_t kEntrySize = 46;
constexpr uint64_t kEndSize = 22;
constexpr uint64_t kLocator64Size = 20;
constexpr uint64_t kEnd64Size = 56;
constexpr uint32_t kIn64 = 0xFFFFFFFF;  // marks a 32-bit field whose value is in the zip64 part

/// Returns a little-endian field; the caller has checked its position.
template <class T>
T field(const char* bytes, size_t offset) {
  T value = 0;
  std::memcpy(&value, bytes + offset, sizeof(T));
  return value;
}

}  // namespace

ZipReader::ZipReader(std::filesystem::path path, std::optional<FileSums> sums)
    : file_(std::move(path), std::move(sums)) {
  read_directory();
}

ZipReader::Directory ZipReader::find_directory() const {
  // The end record comes last, except for a comment of at most 64 KiB, which torch never writes.
  const uint64_t tail_size = std::min<uint64_t>(file_.size(), kEndSize + 0xFFFF);
  std::string tail(tail_size, '\0');
  file_.read(file_.size() - tail_size, tail.data(), tail_size);
  for (uint64_t back = kEndSize; back <= tail_size; ++back) {
    const char* end = tail.data() + (tail_size - back);
    if (field<uint32_t>(end, 0) != kEndSignature) continue;
    Directory directory{field<uint32_t>(end, 16), field<uint32_t>(end, 12), field<uint16_t>(end, 10)};
    const uint64_t end_offset = file_.size() - back;
    if (end_offset < kLocator64Size) return directory;
    char locator[kLocator64Size];
    file_.read(end_offset - kLocator64Size, locator, kLocator64Size);
    if (field<uint32_t>(locator, 0) != kLocator64Signature) return directory;
    char end64[kEnd64Size];
    file_.read(field<uint64_t>(locator, 8), end64, kEnd64Size);
    if (field<uint32_t>(end64, 0) != kEnd64Signature) break;
    return {field<uint64_t>(end64, 48), field<uint64_t>(end64, 40), field<uint64_t>(end64, 32)};
  }
  raise<CheckpointError>(
      path(), " is not a whole zip archive of torch.save (it is torn, or was written by torch < 1.6)");
}

ZipReader::Record ZipReader::parse_entry(const std::string& directory, size_t& cursor) const {
  const auto need = [&](uint64_t size) {
    if (size > directory.size() - cursor) raise<CheckpointError>(path(), " has a torn directory");
  };
  need(kEntrySize);
  const char* entry = directory.data() + cursor;
  if (field<uint32_t>(entry, 0) != kEntrySignature) {
    raise<CheckpointError>(path(), " has an altered directory");
  }
  const uint64_t name_size = field<uint16_t>(entry, 28);
  const uint64_t extra_size = field<uint16_t>(entry, 30);
  const uint64_t entry_size = kEntrySize + name_size + extra_size + field<uint16_t>(entry, 32);
  need(entry_size);
  Record record{std::string(entry + kEntrySize, name_size), field<uint32_t>(entry, 42),
                field<uint32_t>(entry, 24), field<uint32_t>(entry, 16)};
  uint64_t stored_size = field<uint32_t>(entry, 20);
  const char* extra = entry + kEntrySize + name_size;
  for (uint64_t at = 0; at + 4 <= extra_size;) {
    const uint64_t part_size = field<uint16_t>(extra, at + 2);
    if (part_size > extra_size - at - 4) break;
    if (field<uint16_t>(extra, at) == 1) {  // zip64: the fields that do not fit, in this order
      uint64_t position = at + 4;
      for (uint64_t* value : {&record.size, &stored_size, &record.header_offset}) {
        if (*value != kIn64 || position + 8 > at + 4 + part_size) continue;
        *value = field<uint64_t>(extra, position);
        position += 8;
      }
    }
    at += 4 + part_size;
  }
  if (field<uint16_t>(entry, 10) != 0 || stored_size != record.size) {
    raise<CheckpointError>(path(), ": the record '", record.full_name,
                           "' is compressed, expected the plain records of torch.save");
  }
  if (record.size > file_.size() || record.header_offset > file_.size()) {
    raise<CheckpointError>(path(), ": the record '", record.full_name, "' is larger than the file");
  }
  cursor += entry_size;
  return record;
}

void ZipReader::read_directory() {
  const Directory directory = find_directory();
  if (directory.size > file_.size()) raise<CheckpointError>(path(), " has an altered directory");
  std::string bytes(directory.size, '\0');
  file_.read(directory.offset, bytes.data(), bytes.size());
  size_t cursor = 0;
  uint64_t total_size = 0;
  for (uint64_t index = 0; index < directory.num_entries; ++index) {
    Record record = parse_entry(bytes, cursor);
    total_size += record.size;  // each is at most the file's size, so this stops before it could overflow
    if (total_size > file_.size()) raise<CheckpointError>(path(), " has records that overlap");
    const size_t slash = record.full_name.find('/');
    std::string name = slash == std::string::npos ? record.full_name : record.full_name.substr(slash + 1);
    if (!records_.emplace(std::move(name), std::move(record)).second) {
      raise<CheckpointError>(path(), " has two records of one name");
    }
  }
}

const ZipReader::Record& ZipReader::find(const std::string& name) const {
  const auto found = records_.find(name);
  if (found == records_.end()) raise<CheckpointError>(path(), " has no record '", name, "'");
  return found->second;
}

uint64_t ZipReader::data_offset(const Record& record) const {
  if (record.data_offset != 0) return record.data_offset;
  char header[kLocalSize];
  file_.read(record.header_offset, header, kLocalSize);
  const uint64_t name_size = field<uint16_t>(header, 26);
  if (field<uint32_t>(header, 0) != kLocalSignature || name_size != record.full_name.size()) {
    raise<CheckpointError>(path(), ": the header of the record '", record.full_name, "' is altered");
  }
  record.data_offset = record.header_offset + kLocalSize + name_size + field<uint16_t>(header, 28);
  return record.data_offset;
}

void ZipReader::compare(const Record& record, uint32_t crc) const {
  if (crc == record.crc) return;
  raise<CheckpointError>(path(), ": the bytes of the record '", record.full_name,
                         "' do not match their checksum; the file is altered or torn");
}

void ZipReader::read(const std::string& name, void* destination) const {
  const Record& record = find(name);
  const uint64_t offset = data_offset(record);
  // The pieces are small enough to stay in the cache between the read and the checksum.
  constexpr uint64_t kPiece = 4 * kSumChunkBytes;
  auto* target = static_cast<char*>(destination);
  uint32_t crc = 0;
  for (uint64_t done = 0; done < record.size;) {
    const uint64_t count = std::min(kPiece, record.size - done);
    file_.read(offset + done, target + done, count);
    if (!file_.is_verified()) crc = crc32(crc, target + done, count);
    done += count;
  }
  if (!file_.is_verified()) compare(record, crc);
}

void ZipReader::read_part(const std::string& name, uint64_t offset, void* destination, uint64_t size) const {
  const Record& record = find(name);
  if (offset > record.size || size > record.size - offset) {
    raise<CheckpointError>(path(), ": the record '", name, "' has ", record.size,
                           " bytes, expected those from ", offset, " to ", offset + size);
  }
  file_.read(data_offset(record) + offset, destination, size);
  if (file_.is_verified() || is_trusted_) return;
  Progress& progress = progress_[name];
  if (progress.is_checked) return;
  if (offset != progress.next) {
    check_from(record, 0, 0);
    progress.is_checked = true;
    return;
  }
  progress.next += size;
  progress.crc = crc32(progress.crc, destination, size);
  if (progress.next < record.size) return;
  compare(record, progress.crc);
  progress.is_checked = true;
}

void ZipReader::check_from(const Record& record, uint64_t offset, uint32_t crc) const {
  std::string piece(std::min(4 * kSumChunkBytes, record.size - offset), '\0');
  for (uint64_t done = offset; done < record.size;) {
    const uint64_t count = std::min<uint64_t>(piece.size(), record.size - done);
    file_.read(data_offset(record) + done, piece.data(), count);
    crc = crc32(crc, piece.data(), count);
    done += count;
  }
  compare(record, crc);
}

void ZipReader::check_rest() const {
  for (auto& [name, progress] : progress_) {
    if (progress.is_checked) continue;
    check_from(find(name), progress.next, progress.crc);
    progress.is_checked = true;
  }
}

std::string ZipReader::read_text(const std::string& name) const {
  std::string text(size(name), '\0');
  read(name, text.data());
  return text;
}

void check_byte_order(const ZipReader& zip) {
  if (!zip.has("byteorder")) return;  // files of torch < 2.1, which are little-endian in practice
  const std::string order = zip.read_text("byteorder");
  if (order != "little") raise<CheckpointError>("the byte order is '", order, "', expected 'little'");
}

}  // namespace deepspeed::checkpoint
