// The job's description is JSON in base64, so that any channel can carry it: a message, variables that a
// runner passes on, or a file. The file (Deposit) is written before the program that waits for it starts, or
// after: it counts once it ends with a newline.
#include "deepspeed/launcher/link/carried_job.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deepspeed/base/descriptor.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/json.h"
#include "deepspeed/base/text.h"
#include "deepspeed/launcher/link/abandoned.h"

namespace deepspeed::launcher {
namespace {

constexpr const char* kJobVariable = "DEEPSPEED_JOB";
constexpr size_t kVariableBytes = 96 * 1024;
constexpr char kEndOfDeposit = '\n';  // a file without it is still being written
constexpr int kLookForDepositMs = 20;

[[noreturn]] void refuse_job() {
  raise<UsageError>(
      "the description of the job is damaged, or was written by another version of the launcher");
}

std::string job_variable(size_t part) {
  return part == 0 ? kJobVariable : kJobVariable + ("_" + std::to_string(part));
}

std::string bytes_of(const Json& text) {
  auto bytes = text.is_string() ? decode_base64(text.get<std::string>()) : std::nullopt;
  if (!bytes) refuse_job();
  return *std::move(bytes);
}

std::string deposit_path(const std::string& id) {
  const bool is_plain =
      !id.empty() && std::all_of(id.begin(), id.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
  if (!is_plain) raise<UsageError>("job '", id, "': expected letters and digits");
  return "/tmp/deepspeed_job_" + id;
}

/// Reads and removes a file whose path starts with `beginning` and that this user has written completely.
/// Returns nullopt if there is none.
std::optional<std::string> deposit_that_is_there(const std::string& beginning) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/tmp", error)) {
    const std::string path = entry.path().string();
    if (!path.starts_with(beginning)) continue;
    // Another user may put something else there, such as a pipe, which must not block this process.
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!file) continue;  // another program on this machine has just taken it
    struct stat status {};
    const bool is_own =
        ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == ::geteuid();
    std::string text;
    char bytes[65536];
    for (ssize_t size; is_own && (size = ::read(file.get(), bytes, sizeof(bytes))) > 0;)
      text.append(bytes, static_cast<size_t>(size));
    if (!is_own || !text.ends_with(kEndOfDeposit) || ::unlink(path.c_str()) != 0) continue;
    text.pop_back();
    return text;
  }
  return std::nullopt;
}

}  // namespace

std::string CarriedJob::text() const {
  Json json = {{"words", Json::array()}, {"exports", Json::object()}, {"addresses", addresses}};
  for (const std::string& word : words) json["words"].push_back(encode_base64(word));
  for (const auto& [name, value] : exports) json["exports"][encode_base64(name)] = encode_base64(value);
  json["folder"] = encode_base64(working_folder);
  json["secret"] = encode_base64(secret);
  json["port"] = port;
  return encode_base64(json.dump());
}

CarriedJob CarriedJob::from_text(const std::string& text) {
  const auto bytes = decode_base64(text);
  const Json json = bytes ? Json::parse(*bytes, nullptr, false) : Json();
  const bool is_whole = json.is_object() && json.contains("words") && json.contains("exports") &&
                        json.contains("folder") && json.contains("secret") && json.contains("addresses") &&
                        json.contains("port") && json["port"].is_number_integer();
  if (!is_whole) refuse_job();
  CarriedJob job;
  for (const Json& word : json["words"]) job.words.push_back(bytes_of(word));
  for (const auto& [name, value] : json["exports"].items()) job.exports[bytes_of(name)] = bytes_of(value);
  for (const Json& address : json["addresses"]) {
    if (!address.is_string()) refuse_job();
    job.addresses.push_back(address.get<std::string>());
  }
  job.working_folder = bytes_of(json["folder"]);
  job.secret = bytes_of(json["secret"]);
  job.port = json["port"].get<int>();
  return job;
}

bool is_job_variable(const std::string& name) {
  return name == kJobVariable || name.starts_with(std::string(kJobVariable) + "_");
}

Environment job_variables(const CarriedJob& job) {
  const std::string text = job.text();
  Environment variables;
  for (size_t part = 0; part * kVariableBytes < text.size(); ++part)
    variables[job_variable(part)] = text.substr(part * kVariableBytes, kVariableBytes);
  return variables;
}

CarriedJob take_job(Environment& environment) {
  std::string text;
  for (size_t part = 0;; ++part) {
    const auto found = environment.find(job_variable(part));
    if (found == environment.end()) break;
    text += found->second;
    environment.erase(found);
  }
  if (text.empty()) {
    raise<UsageError>("the variable ", kJobVariable,
                      " is not set: this program is started by `deepspeed`, whose ",
                      "--launcher has to hand its variables on");
  }
  return CarriedJob::from_text(text);
}

Deposit::Deposit(const std::string& id, const std::string& text) : path_(deposit_path(id)) {
  const std::string whole = text + kEndOfDeposit;
  const Descriptor file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  size_t written = 0;
  while (file && written < whole.size()) {
    const ssize_t size = ::write(file.get(), whole.data() + written, whole.size() - written);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    written += static_cast<size_t>(size);
  }
  const int error = errno;
  if (file && written == whole.size()) return;
  if (file) ::unlink(path_.c_str());
  raise<IoError>("cannot write ", path_, ": ", std::strerror(error));
}

Deposit::~Deposit() { ::unlink(path_.c_str()); }

std::string take_deposit(const std::string& id, std::chrono::milliseconds patience) {
  const std::string beginning = deposit_path(id);
  const auto until = std::chrono::steady_clock::now() + patience;
  do {
    if (auto text = deposit_that_is_there(beginning)) return *std::move(text);
    if (std::chrono::steady_clock::now() < until) ::poll(nullptr, 0, kLookForDepositMs);
  } while (std::chrono::steady_clock::now() < until && !is_abandoned());
  raise<IoError>("there is no description of the job, ", beginning, ", that this user has written");
}

}  // namespace deepspeed::launcher
