#!/usr/bin/env bash
# Installs the package as an ordinary user of a fresh Debian would, trains on two ranks, and builds the C++ example over it:
#   tests/install/fresh_root.sh bookworm|trixie [WHEEL]
# Root makes the system by debootstrap, once, with a compiler, Python and its headers, and none of the packages that
# scripts/setup.sh names. Without WHEEL the checkout's commit is built by `pip install .`.
#
#   PACKAGES=yes               runs scripts/setup.sh as the system's root before, in a system of its own
#   ROOTS=FOLDER               where the systems lie (build/roots)
#   DEEPSPEED_DEPS_DIR=FOLDER  archives of scripts/fetch_deps.sh, where the machine has no network but a registry of Python's
#   TORCH_SITE=FOLDER          a site-packages that is copied; of one for another Python its NVIDIA libraries alone
#   CCACHE_DIR=FOLDER          objects of earlier tries, for one with the packages
#   JOBS=N                     compilers at a time
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
suite=${1:?usage: fresh_root.sh bookworm|trixie [WHEEL]}
wheel=${2:-}
roots=${ROOTS:-$source/build/roots}
root=$roots/$suite${PACKAGES:+-packages}
[ "$(id -u)" -eq 0 ] || { echo "fresh_root: only root can make a system and change into it" >&2; exit 77; }
command -v debootstrap >/dev/null || { echo "fresh_root: debootstrap is missing" >&2; exit 77; }

if [ ! -e "$root/ready" ]; then
  rm -rf "$root"
  mkdir -p "$roots"
  debootstrap --variant=minbase --include=ca-certificates,g++,python3,python3-venv,python3-dev "$suite" "$root" \
    http://deb.debian.org/debian >"$root.log" 2>&1 || { tail -n 5 "$root.log" >&2; exit 1; }
  chroot "$root" useradd --create-home --uid 1000 user
  touch "$root/ready"
fi

home=$root/home/user
rm -rf "$home"
mkdir -p "$home/checkout" "$home/deps"
git -C "$source" archive HEAD | tar -x -C "$home/checkout"
[ -z "${DEEPSPEED_DEPS_DIR:-}" ] || cp "$DEEPSPEED_DEPS_DIR"/*.tar.gz "$home/deps/"
[ -z "$wheel" ] || cp "$wheel" "$home/"
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
cp -L /etc/pip.conf "$root/etc/" 2>/dev/null || true
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"

chroot "$root" chown -R user: /home/user

cat >"$home/train.py" <<'PYTHON'
import deepspeed
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))
config = {"train_batch_size": 8, "zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for step in range(50):
    x = torch.randn(4, 8)
    loss = (engine(x).squeeze(1) - x.sum(1)).pow(2).mean()
    engine.backward(loss)
    engine.step()
    if step % 49 == 0:
        print(f"rank {engine.global_rank} of {deepspeed.comm.get_world_size()} step {step} loss {loss.item():.4f}", flush=True)
PYTHON

# as USER SCRIPT: it runs in the system, with namespaces of its own.
as() {
  unshare --mount --pid --fork --kill-child sh -c '
    mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"
    if [ -n "$4" ]; then mkdir -p "$0/ccache"; mount --bind "$4" "$0/ccache"; fi
    exec chroot --userspec="$5:$5" "$0" /usr/bin/env -i HOME=/home/user PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin LANG=C.UTF-8 \
      ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"} SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt ${4:+CCACHE_DIR=/ccache} \
      DEEPSPEED_DEPS_DIR="$2" CMAKE_BUILD_PARALLEL_LEVEL="$3" DS_ACCELERATOR=cpu \
      /bin/bash -euc "cd /home/user; . venv/bin/activate 2>/dev/null || true; $1"' \
    "$root" "$2" "${DEEPSPEED_DEPS_DIR:+/home/user/deps}" "${JOBS:-$(nproc)}" "${CCACHE_DIR:-}" "$1"
}
as_user() { as user "$1"; }

as_user 'python3 -m venv venv'
if [ -n "${TORCH_SITE:-}" ]; then
  site=$(echo "$home"/venv/lib/python3*/site-packages)
  entries=("$TORCH_SITE"/*)
  [ "${site%/*}" = "${site%/python3*}/$(basename "$(dirname "$TORCH_SITE")")" ] || entries=("$TORCH_SITE"/nvidia*)
  for entry in "${entries[@]}"; do
    [ -e "$site/${entry##*/}" ] || cp -al "$entry" "$site/" 2>/dev/null || cp -a "$entry" "$site/"
  done
  rm -rf "$site"/deepspeed*
fi
as_user 'pip install --quiet "torch==2.11.*" numpy'
if [ -n "${PACKAGES:-}" ]; then
  as root 'DEEPSPEED_TORCH_DIR=$(echo venv/lib/python3*/site-packages/torch) DEEPSPEED_CPP_CACHE=/tmp/cache checkout/scripts/setup.sh'
fi
TIMEFORMAT="installed in %0R s, of the processors %0U s"
time if [ -n "$wheel" ]; then
  as_user 'pip install --quiet *.whl'
else
  as_user 'cd checkout; pip install --verbose . >~/install.log 2>&1 || { tail -n 40 ~/install.log; exit 1; }'
fi
as_user 'python -c "import deepspeed; print(deepspeed.__version__)"; deepspeed --num_procs 2 --no_local_rank train.py; ds_report | tail -n 15'
as_user 'command -v cmake ninja >/dev/null || pip install --quiet cmake ninja
  prefix=$(python -m deepspeed.cmake)
  cmake -S checkout/examples/cmake_project -B example -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
  cmake --build example >/dev/null
  "$prefix/bin/deepspeed" --num_procs 2 example/my_training'
echo "$suite: passed"
