#!/bin/sh
# Says, a line each, why the library cannot be built on this machine, and ends with 1 where there is a reason:
#   scripts/check_machine.sh [--python PYTHON] [COMPILER [FLAGS...]]
# CMake, pip and scripts/setup.sh ask it, so that all of them say it alike, and before they fetch or compile anything. It looks at
# the compiler (else $CXX, c++, g++ or clang++), its processor and the C library, and with --python at the version and headers of PYTHON.
packages="apt: g++ | dnf: gcc-c++, or gcc-toolset-12 and \`scl enable gcc-toolset-12 bash\` | conda: cxx-compiler"
python=
if [ "${1:-}" = --python ]; then
  python=$2
  shift 2
fi
status=0
problem() {
  printf '%s\n' "$*"
  status=1
}

# shellcheck disable=SC2086 # $CXX may hold flags
if [ $# -eq 0 ] && [ -n "${CXX:-}" ]; then
  set -- $CXX
elif [ $# -eq 0 ]; then
  for name in c++ g++ clang++; do
    if command -v "$name" >/dev/null; then
      set -- "$name"
      break
    fi
  done
fi

# What the compiler says of itself: lines of a word and what it found.
asked='#if __has_include(<source_location>)
library new
#endif
#if defined __INTEL_LLVM_COMPILER || defined __NVCOMPILER || defined __apple_build_version__ || defined __INTEL_COMPILER
compiler other 0
#elif defined __clang__
compiler clang __clang_major__
#elif defined __GNUC__
compiler GNU __GNUC__
#endif
#if defined __x86_64__ && __SIZEOF_POINTER__ == 8
processor x86_64
#elif defined __aarch64__ && __SIZEOF_POINTER__ == 8
processor aarch64
#endif'
if [ $# -eq 0 ]; then
  problem "no C++ compiler was found on PATH, and g++ 11 or clang 16 or later is needed ($packages)"
elif ! said=$(printf '%s\n' "$asked" | "$@" -E -P -x c++ - 2>&1); then
  problem "the compiler '$*' does not run ($(printf '%s\n' "$said" | head -n 1)), and g++ 11 or clang 16 or later is needed ($packages)"
else
  family=$(printf '%s\n' "$said" | sed -n 's/^compiler \(.*\) .*/\1/p')
  version=$(printf '%s\n' "$said" | sed -n 's/^compiler .* \([0-9]*\)$/\1/p')
  case $family in GNU) lowest=11 ;; clang) lowest=16 ;; *) lowest=1 ;; esac
  if [ "${version:-0}" -lt $lowest ]; then
    others=
    for name in g++-14 g++-13 g++-12 g++-11 clang++-19 clang++-18 clang++-17 clang++-16; do
      ! command -v "$name" >/dev/null || others="$others, which CXX=$name is"
      [ -z "$others" ] || break
    done
    problem "the compiler '$*' is $("$@" --version 2>/dev/null | head -n 1) ($family $version), and g++ 11 or clang 16 or later is needed${others:- ($packages)}"
  fi
  printf '%s\n' "$said" | grep -q '^library new' ||
    problem "the compiler '$*' has no <source_location>: headers of g++ 11's C++ library or a later one are needed ($packages)"
  processor=$(printf '%s\n' "$said" | sed -n 's/^processor //p')
  machine=$(uname -m)
  if [ -z "$processor" ]; then
    problem "the compiler '$*' compiles for neither x86_64 nor aarch64 of 64 bits ($("$@" -dumpmachine), on $machine), which torch is made for"
  elif [ "$processor" = "$machine" ]; then  # another one's C library is not that of this machine
    libc=$(getconf GNU_LIBC_VERSION 2>/dev/null || echo "not glibc")
    if [ "$libc" = "not glibc" ] || [ "$(printf 'glibc 2.28\n%s\n' "$libc" | sort -V | head -n 1)" != "glibc 2.28" ]; then
      problem "the C library is $libc, and glibc 2.28 or later is needed, as by torch: Debian 10, Ubuntu 20.04, Rocky 8 or a later system has it"
    fi
  fi
fi
if [ -n "$python" ]; then
  said=$("$python" -c 'import sys, sysconfig; print("%d.%d %s" % (sys.version_info[0], sys.version_info[1], sysconfig.get_path("include")))')
  version=${said%% *} include=${said#* }
  if [ "$(printf '3.10\n%s\n' "$version" | sort -V | head -n 1)" != 3.10 ]; then
    problem "Python is $version ($python), and 3.10 or later is needed, as by torch (apt: python3 of a later system | dnf: python3.11 | conda: python)"
  elif [ ! -f "$include/Python.h" ]; then
    problem "Python's headers are missing (no $include/Python.h): apt: python3-dev | dnf: python3.11-devel of python3.11 | conda: python has them"
  fi
fi
exit $status
