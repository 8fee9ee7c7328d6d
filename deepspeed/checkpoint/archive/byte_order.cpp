#include "deepspeed/checkpoint/archive/byte_order.h"

#include "deepspeed/base/error.h"

namespace deepspeed::checkpoint {

void check_byte_order(const ZipReader& zip) {
  if (!zip.has("byteorder")) return;  // files of torch < 2.1, little-endian in practice
  const std::string order = zip.read_text("byteorder");
  if (order != "little") raise<CheckpointError>("the byte order is '", order, "', expected 'little'");
}

}  // namespace deepspeed::checkpoint
