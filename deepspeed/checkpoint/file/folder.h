// An open folder. What a save does in it is done by the names inside, so that no link leads elsewhere.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "deepspeed/base/export.h"

namespace deepspeed::checkpoint {

/// Holds a folder open: it stays the one that was opened, whatever has its name later. Names are those inside
/// of it, without a slash, and no function follows a link under such a name. All throw IoError with the path
/// and the system's reason. Copies share the open folder.
class DEEPSPEED_API Folder {
 public:
  /// Opens a folder that the program names; links on the way to it are followed.
  explicit Folder(const std::filesystem::path& path);

  /// Opens the folder of that name; nothing where there is none, or a link or something else.
  std::optional<Folder> find(const std::string& name) const;
  /// Opens the folder of that name, and makes it where there is none. Throws IoError, saying what is there,
  /// where a link, a file or another user's folder has the name.
  Folder make(const std::string& name) const;
  /// Says whether the name is that of a folder of this user. Where a file system shows another owner for
  /// what this process makes, that one counts.
  bool owns(const std::string& name) const;
  /// Says whether anything has the name; a link counts, wherever it leads.
  bool has(const std::string& name) const;
  /// Says whether the name is still that of `folder`.
  bool has(const std::string& name, const Folder& folder) const;

  /// Opens a file, with open()'s flags; -1, with errno, where that fails. The caller closes it.
  int open_file(const std::string& name, int flags, mode_t mode = 0666) const;
  /// Removes a file, a link, or a folder with all below it. Does nothing where there is none.
  void remove(const std::string& name) const;
  /// Removes a folder as remove() does. Throws IoError, before anything is removed, where it is another
  /// user's.
  void remove_own(const std::string& name) const;
  /// Removes all that is inside.
  void empty() const;
  /// Gives an entry another name in this folder.
  void rename(const std::string& from, const std::string& to) const;
  /// Exchanges two names in one step; returns false where the file system cannot.
  bool exchange(const std::string& a, const std::string& b) const;
  /// Makes the names inside durable.
  void sync() const;

  std::vector<std::string> names() const;
  const std::filesystem::path& path() const { return path_; }  // by which it was opened, for messages
  int handle() const { return *handle_; }

 private:
  Folder(std::filesystem::path path, int handle);
  [[noreturn]] void fail(const char* action, const std::string& name, int error) const;

  std::filesystem::path path_;
  std::shared_ptr<const int> handle_;
};

}  // namespace deepspeed::checkpoint
