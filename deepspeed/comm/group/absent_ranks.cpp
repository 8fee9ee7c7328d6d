#include "deepspeed/comm/group/absent_ranks.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include <unistd.h>

#include "deepspeed/base/message.h"
#include "deepspeed/comm/group/store_polling.h"

namespace deepspeed::comm {
namespace {

constexpr const char* kCount = "absent/count";

std::string absent_key(int rank) { return "absent/" + std::to_string(rank); }
std::string process_key(int rank) { return "process/" + std::to_string(rank); }

/// Names the processes whose numbers mean the same here as there: those since one start of a machine, in one
/// container of it.
std::string own_processes() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::error_code none;
  return boot + "/" + std::filesystem::read_symlink("/proc/self/ns/pid", none).string();
}

/// When a process began, in ticks of the machine; nothing where it has ended.
std::optional<std::string> begin_of(int64_t process) {
  std::string line;
  std::getline(std::ifstream("/proc/" + std::to_string(process) + "/stat"), line);
  // After the name, which may hold anything, come the state and 18 numbers, and then the time.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(line.substr(name_end + 1));
  std::string state, word;
  rest >> state;
  if (state == "Z" || state == "X") return std::nullopt;
  for (int number = 0; number < 19; ++number) rest >> word;
  return word;
}

}  // namespace

void note_presence(c10d::Store& store, int rank) {
  const int64_t process = ::getpid();
  store.set(process_key(rank), message(own_processes(), "\n", process, "\n", begin_of(process).value_or("")));
}

void note_absence(c10d::Store& store, int rank, const std::string& why) {
  store.set(absent_key(rank), why);
  store.add(kCount, 1);
}

AbsentRanks::AbsentRanks(c10d::Store& store, std::vector<int> members, std::vector<int> neighbours)
    : store_(store), members_(std::move(members)), neighbours_(std::move(neighbours)) {}

void AbsentRanks::read_processes() {
  if (neighbours_.empty()) return;
  const std::string own = own_processes() + "\n";
  for (const int rank : std::exchange(neighbours_, {})) {
    if (std::ranges::find(members_, rank) == members_.end()) continue;
    const auto mark = read_if_set(store_, process_key(rank));
    if (mark && mark->starts_with(own)) processes_[rank] = mark->substr(own.size());
  }
}

std::optional<std::string> AbsentRanks::find_noted() {
  const int64_t num_noted = store_.add(kCount, 0);
  if (std::exchange(num_noted_, num_noted) == num_noted) return std::nullopt;
  for (const int rank : members_) {
    if (const auto why = read_if_set(store_, absent_key(rank))) return message("rank ", rank, " ", *why);
  }
  return std::nullopt;
}

std::optional<std::string> AbsentRanks::find_ended() {
  read_processes();
  for (const auto& [rank, mark] : processes_) {
    std::istringstream lines(mark);
    std::string begin;
    int64_t process = 0;
    lines >> process >> begin;
    if (begin.empty() || begin_of(process) == begin) continue;
    const std::string why = message("ended (process ", process, ")");
    note_absence(store_, rank, why);
    return message("rank ", rank, " ", why);
  }
  return std::nullopt;
}

std::optional<std::string> AbsentRanks::find() {
  auto found = find_noted();
  return found ? found : find_ended();
}

}  // namespace deepspeed::comm
