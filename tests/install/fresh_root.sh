#!/usr/bin/env bash
# Installs the package as an ordinary user of a fresh Debian would, and trains on two ranks:
#   tests/install/fresh_root.sh bookworm|trixie [WHEEL]
# Root makes the system by debootstrap, once, with a compiler, Python and its headers, and none of the packages that
# scripts/setup.sh names. Without WHEEL the checkout's commit is built by `pip install .`.
#
#   ROOTS=FOLDER               where the systems lie (build/roots)
#   DEEPSPEED_DEPS_DIR=FOLDER  archives of scripts/fetch_deps.sh, where the machine has no network but a registry of Python's
#   TORCH_SITE=FOLDER          a site-packages whose torch is taken in place of a download; its Python must be the system's
#   JOBS=N                     compilers at a time
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
suite=${1:?usage: fresh_root.sh bookworm|trixie [WHEEL]}
wheel=${2:-}
roots=${ROOTS:-$source/build/roots}
root=$roots/$suite
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

# as_user SCRIPT: it runs in the system, with namespaces of its own.
as_user() {
  unshare --mount --pid --fork --kill-child sh -c '
    mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"
    exec chroot --userspec=user:user "$0" /usr/bin/env -i HOME=/home/user PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 \
      ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"} SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
      DEEPSPEED_DEPS_DIR="$2" CMAKE_BUILD_PARALLEL_LEVEL="$3" DS_ACCELERATOR=cpu \
      /bin/bash -euc "cd ~; . venv/bin/activate 2>/dev/null || true; $1"' \
    "$root" "$1" "${DEEPSPEED_DEPS_DIR:+/home/user/deps}" "${JOBS:-$(nproc)}"
}

as_user 'python3 -m venv venv'
if [ -n "${TORCH_SITE:-}" ]; then
  site=$(echo "$home"/venv/lib/python3*/site-packages)
  for entry in "$TORCH_SITE"/*; do
    [ -e "$site/${entry##*/}" ] || cp -al "$entry" "$site/" 2>/dev/null || cp -a "$entry" "$site/"
  done
  rm -rf "$site"/deepspeed*
else
  as_user 'pip install --quiet "torch==2.11.*" numpy'
fi
started=$SECONDS
if [ -n "$wheel" ]; then as_user 'pip install --quiet *.whl'; else as_user 'cd checkout; pip install --verbose . >~/install.log 2>&1 || { tail -n 40 ~/install.log; exit 1; }'; fi
echo "installed in $((SECONDS - started)) s"
as_user 'python -c "import deepspeed; print(deepspeed.__version__)"; deepspeed --num_procs 2 --no_local_rank train.py; ds_report | head -n 20'
