#include "deepspeed/checkpoint/convert/zero_to_fp32_script.h"

#include <string_view>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json.h"
#include "deepspeed/base/text_file.h"
#include "deepspeed/checkpoint/file/folder.h"
#include "deepspeed/checkpoint/tag/layout.h"

namespace deepspeed::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLibraryMark = "@library_folder@";
constexpr std::string_view kZeroToFp32Script = R"python(#!/usr/bin/env python3
"""Turns the checkpoint in this folder into fp32 weights, by the program zero_to_fp32 of deepspeed-cpp.

    python zero_to_fp32.py . OUTPUT [--safe_serialization] [--max_shard_size 5GB] [-t TAG]
                                    [--exclude_frozen_parameters] [--mp_rank N] [-d]

writes OUTPUT/pytorch_model.bin or OUTPUT/model.safetensors, in shards where they are large; --help says more. Where ranks have
cut layers, mp_rank names the one whose part is meant; without it each part has files of its own, mp_rank_00_... The functions
below do the same in a Python program; those that return tensors need torch.
"""
import os
import shutil
import subprocess
import sys
import tempfile

PROGRAM = "zero_to_fp32"
# Where the library lay that wrote this file; the program lies in a folder "bin" beside it or above.
LIBRARY_FOLDER = @library_folder@


def find_program():
    """The path of the program; RuntimeError, with the ways out, where there is none."""
    home = os.environ.get("DEEPSPEED_CPP_HOME")
    if home:
        program = os.path.join(home, "bin", PROGRAM)
        if not os.access(program, os.X_OK):
            raise RuntimeError("DEEPSPEED_CPP_HOME is {}, but there is no program {}".format(home, program))
        return program
    near = [os.path.join(os.path.dirname(sys.executable), PROGRAM)] if sys.executable else []
    near += [os.path.join(LIBRARY_FOLDER, *[os.pardir] * up, "bin", PROGRAM) for up in (0, 1, 2)] if LIBRARY_FOLDER else []
    for program in [shutil.which(PROGRAM)] + [os.path.normpath(path) for path in near]:
        if program and os.path.isfile(program) and os.access(program, os.X_OK):
            return program
    raise RuntimeError("the program {} of deepspeed-cpp is neither in PATH nor beside this Python nor near {!r}: install deepspeed-cpp, or set "
                       "DEEPSPEED_CPP_HOME to the folder that holds its bin/{}".format(PROGRAM, LIBRARY_FOLDER, PROGRAM))


def convert_zero_checkpoint_to_fp32_state_dict(checkpoint_dir, output_dir, max_shard_size="5GB", safe_serialization=False,
                                               tag=None, exclude_frozen_parameters=False, mp_rank=None):
    """Writes the weights into the folder output_dir (or the file, where it ends in .bin, .pt, .pth or .safetensors).
    max_shard_size=None: one file."""
    command = [find_program(), os.fspath(checkpoint_dir), os.fspath(output_dir),
               "--max_shard_size", str(max_shard_size or "900000TB")]
    command += ["--safe_serialization"] if safe_serialization else []
    command += ["--tag", str(tag)] if tag is not None else []
    command += ["--exclude_frozen_parameters"] if exclude_frozen_parameters else []
    command += ["--mp_rank", str(mp_rank)] if mp_rank is not None else []
    done = subprocess.run(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, universal_newlines=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or "{} ended with {}".format(PROGRAM, done.returncode))


def get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir, tag=None, exclude_frozen_parameters=False, lazy_mode=False,
                                             mp_rank=None):
    """The weights by name, on the CPU. They go through a file in the folder for temporary ones (TMPDIR); with lazy_mode they
    stay in it until they are used, and the disk's room is free again when they are."""
    import torch
    with tempfile.TemporaryDirectory(prefix="zero_to_fp32.") as folder:
        file = os.path.join(folder, "weights.bin")
        convert_zero_checkpoint_to_fp32_state_dict(checkpoint_dir, file, tag=tag,
                                                   exclude_frozen_parameters=exclude_frozen_parameters, mp_rank=mp_rank)
        if not os.path.exists(file):
            raise RuntimeError("ranks have cut the layers of {}; name the one whose part is wanted by mp_rank".format(checkpoint_dir))
        mapped = {"mmap": True} if lazy_mode else {}
        return torch.load(file, map_location="cpu", weights_only=True, **mapped)


def load_state_dict_from_zero_checkpoint(model, checkpoint_dir, tag=None, mp_rank=None):
    """Moves the model to the CPU, loads the weights into it, and returns it."""
    weights = get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir, tag=tag, mp_rank=mp_rank)
    model = model.cpu()
    model.load_state_dict(weights, strict=False)
    return model


if __name__ == "__main__":
    try:
        found = find_program()
    except RuntimeError as error:
        raise SystemExit("zero_to_fp32.py: {}".format(error))
    os.execv(found, [found] + sys.argv[1:])
)python";

/// Returns the folder of the file with this code, or "" if unknown.
fs::path library_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&zero_to_fp32_script), &info) == 0 || info.dli_fname == nullptr)
    return {};
  std::error_code error;
  const fs::path file = fs::canonical(info.dli_fname, error);
  return error ? fs::path() : file.parent_path();
}

/// Returns the text as a Python string literal.
std::string python_literal(const std::string& text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

bool has_content(const fs::path& file, const std::string& text) {
  try {
    return read_text_file(file, text.size()) == text;
  } catch (const IoError&) {  // it is missing or not a regular file
    return false;
  }
}

}  // namespace

std::string zero_to_fp32_script() {
  std::string text(kZeroToFp32Script);
  text.replace(text.find(kLibraryMark), kLibraryMark.size(), python_literal(library_folder().string()));
  return text;
}

void write_zero_to_fp32_script(const fs::path& dir) {
  const fs::path file = zero_to_fp32_script_path(dir);
  const std::string text = zero_to_fp32_script();
  if (!has_content(file, text)) write_beside_tags(file, text);
  // On failure, "python zero_to_fp32.py" still works.
  const int script = Folder(dir).open_file(file.filename().string(), O_RDONLY | O_NONBLOCK);
  struct stat status {};
  if (script >= 0 && ::fstat(script, &status) == 0) ::fchmod(script, status.st_mode | 0111);
  if (script >= 0) ::close(script);
}

}  // namespace deepspeed::checkpoint
