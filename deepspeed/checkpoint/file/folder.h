// Works by names inside an open folder, so that no link can redirect a save.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "deepspeed/base/export.h"

namespace deepspeed::checkpoint {

/// Holds a folder open, even if its name later belongs to another folder. Each `name` is that of an entry
/// directly inside the folder, without a slash. An entry that is a link is not followed. All functions throw
/// IoError with the path and the system's reason. Copies share the open folder.
class DEEPSPEED_API Folder {
 public:
  /// Opens the folder at a path given by the program. Links in the path are followed.
  explicit Folder(const std::filesystem::path& path);

  /// Opens the folder `name`. Returns nothing if there is none, or if it is a link or a file.
  std::optional<Folder> find(const std::string& name) const;
  /// Opens the folder `name`, creating it if nothing has that name. Throws IoError, saying what is there, if
  /// the name belongs to a link, a file or another user's folder.
  Folder make(const std::string& name) const;
  /// Returns whether `name` is a folder of this user. Some file systems show another owner for what this
  /// process creates; such an owner counts as this user.
  bool owns(const std::string& name) const;
  /// Returns whether an entry `name` exists; a dangling link counts.
  bool has(const std::string& name) const;
  /// Returns whether `name` still refers to `folder`.
  bool has(const std::string& name, const Folder& folder) const;

  /// Opens a file with the flags of open(). Returns -1 and sets errno on failure. The caller closes it.
  int open_file(const std::string& name, int flags, mode_t mode = 0666) const;
  /// Removes a file, a link or a whole folder tree, if it exists.
  void remove(const std::string& name) const;
  /// Removes a folder like remove(). If it belongs to another user, throws IoError before removing anything.
  void remove_own(const std::string& name) const;
  /// Removes all entries of this folder.
  void empty() const;
  /// Renames an entry within this folder.
  void rename(const std::string& from, const std::string& to) const;
  /// Swaps two entries atomically. Returns false, with nothing changed, if the system cannot.
  bool exchange(const std::string& a, const std::string& b) const;
  /// Makes the folder's entries durable.
  void sync() const;

  std::vector<std::string> names() const;
  const std::filesystem::path& path() const { return path_; }  // as given when it was opened, for messages
  int handle() const { return *handle_; }

 private:
  Folder(std::filesystem::path path, int handle);
  [[noreturn]] void fail(const char* action, const std::string& name, int error) const;

  std::filesystem::path path_;
  std::shared_ptr<const int> handle_;
};

}  // namespace deepspeed::checkpoint
