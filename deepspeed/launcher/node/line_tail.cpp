#include "deepspeed/launcher/node/line_tail.h"

#include <algorithm>
#include <fstream>

namespace deepspeed::launcher {
namespace {

constexpr size_t kMaxLineBytes = 1000;
constexpr std::streamoff kMaxTailBytes = 64 * 1024;

}  // namespace

void LineTail::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    std::string& line = lines_.back();
    line += part.substr(0, kMaxLineBytes - std::min(kMaxLineBytes, line.size()));
    if (end == std::string_view::npos) return;
    lines_.emplace_back();
    // Keep one extra line, because the growing line may stay empty.
    if (lines_.size() > max_lines_ + 1) drop_oldest();
    bytes.remove_prefix(end + 1);
  }
}

void LineTail::drop_oldest() {
  if (lines_.front().starts_with("terminate called after")) exception_ = {lines_.front()};
  if (lines_.front().starts_with("  what():") && exception_.size() == 1) exception_.push_back(lines_.front());
  lines_.pop_front();
}

std::vector<std::string> LineTail::lines() const {
  std::vector<std::string> kept(lines_.begin(), lines_.end());
  while (!kept.empty() && kept.back().empty()) kept.pop_back();
  if (kept.size() > max_lines_) kept.erase(kept.begin());
  kept.insert(kept.begin(), exception_.begin(), exception_.end());
  return kept;
}

std::vector<std::string> last_lines_of_file(const std::string& path, size_t max_lines) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kMaxTailBytes));
  LineTail tail(max_lines);
  char bytes[4096];
  while (file.read(bytes, sizeof(bytes)) || file.gcount() > 0) {
    tail.append({bytes, static_cast<size_t>(file.gcount())});
  }
  return tail.lines();
}

}  // namespace deepspeed::launcher
