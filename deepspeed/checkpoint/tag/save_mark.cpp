#include "deepspeed/checkpoint/tag/save_mark.h"

#include <random>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"

namespace deepspeed::checkpoint {

std::string new_save() {
  std::random_device random;
  std::string digits;
  for (int word = 0; word < 4; ++word) {
    const uint32_t bits = random();
    for (int shift = 28; shift >= 0; shift -= 4) digits += "0123456789abcdef"[(bits >> shift) & 0xF];
  }
  return digits;
}

std::string to_text(const SaveMark& mark) {
  return Json{{"save", mark.save}, {"file", mark.file}, {"steps", mark.steps}, {"ranks", mark.ranks}}.dump(
      -1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

SaveMark parse_mark(const std::string& text) {
  try {
    const Json json = parse_json(text, "the mark of its save");
    return {json.at("save").get<std::string>(), json.at("file").get<std::string>(),
            json.at("steps").get<int64_t>(), json.at("ranks").get<int64_t>()};
  } catch (const Json::exception& error) {
    raise<CheckpointError>("the mark of its save is altered: ", error.what());
  } catch (const ConfigError& error) {
    raise<CheckpointError>("the mark of its save is altered: ", error.what());
  }
}

}  // namespace deepspeed::checkpoint
