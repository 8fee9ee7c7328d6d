#!/usr/bin/env bash
# The main job, from an empty machine to sampled text: trains a small GPT-2 on two ranks with ZeRO-2, evaluates and
# saves it, resumes from an earlier checkpoint and compares the losses, makes one fp32 file of it, samples from that.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'HELP'
usage: demo.sh [--quick] [--data FILE] [--procs N]

  --quick      a shorter training (under 2 minutes in place of under 10 on two cores, once everything is set up)
  --data FILE  text to train on (default: the texts in /usr/share/common-licenses, else this project's pages)
  --procs N    ranks (default 2)

Everything that it writes lies in demo-output/.
HELP
}

fail() {
  printf 'demo.sh: %s\n' "$*" >&2
  exit 1
}

stage() { printf '\n== %s\n' "$*"; }

data=() procs=2 steps=1200 earlier=800 overlap=50 samples=500
config=$root/examples/gpt2/ds_config.json
quick=no
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=yes ;;
    --data)
      [ $# -ge 2 ] || fail "--data needs a file"
      [ -f "$2" ] || fail "there is no file $2"
      data=(--data "$(realpath "$2")")
      shift
      ;;
    --procs)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail "--procs needs a number of ranks, at least 1"
      procs=$2
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      usage >&2
      fail "unknown argument $1"
      ;;
  esac
  shift
done

# Without a GPU the demo computes on the CPU, and leaves CUDA's kernels out of a build that has none yet.
needs_no_cuda() {
  [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ] && ! grep -qs '^DEEPSPEED_CUDA:.*=auto$' "$build/CMakeCache.txt"
}

started=$SECONDS
output=$root/demo-output
build=$root/build/release
[ "${TORCH_VERSION:-2.11.0}" = 2.11.0 ] || build=$build-torch-$TORCH_VERSION
if needs_no_cuda; then export DEEPSPEED_CUDA=${DEEPSPEED_CUDA:-OFF}; fi
bin=$build/bin
gpt2=$build/examples/gpt2

# A release's archive or wheel of these very sources takes the place of a build.
cache=${DEEPSPEED_CPP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/deepspeed-cpp}
compiled=
if { compgen -G "$cache/deepspeed-cpp-*.tar.gz" || compgen -G "$cache/deepspeed-*.whl"; } >/dev/null; then
  stage "Looking for a release of these sources in $cache"
  "$root/scripts/setup.sh" --torch
  torch=$(cat "$cache/torch_dir-${TORCH_VERSION:-2.11.0}")
  compiled=$(python3 "$root/python/release_cache.py" --prefix "$torch")
fi
if [ -n "$compiled" ]; then
  bin=$compiled/bin
  gpt2=$compiled/libexec/deepspeed/gpt2
  LD_LIBRARY_PATH=$torch/lib$(printf ':%s' "${torch%/torch}"/nvidia/*/lib)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export LD_LIBRARY_PATH
else
  stage "Setting up and building the library, its launcher and the example (a quarter of an hour on two cores, once)"
  "$root/scripts/setup.sh"
  "$root/scripts/build.sh" release app_deepspeed app_ds_node app_zero_to_fp32 example_gpt2
fi
set_up=$SECONDS

rm -rf "$output"
mkdir -p "$output"
cd "$output"

if [ ${#data[@]} -eq 0 ] && [ ! -d /usr/share/common-licenses ]; then  # as outside of Debian and Ubuntu
  cat "$root"/*.md "$root"/docs/*.md "$root/LICENSE" >text.txt
  data=(--data "$output/text.txt")
fi
if [ $quick = yes ]; then
  # The same job in fewer steps: the schedule's length is the only thing that changes in the config.
  steps=240 earlier=160 overlap=20 samples=200
  sed "s/\"total_num_steps\": [0-9]*/\"total_num_steps\": $steps/; s/\"warmup_num_steps\": [0-9]*/\"warmup_num_steps\": 40/" \
    "$config" >ds_config.json
  config=$output/ds_config.json
fi

# train STEPS LOSS_LOG [more options]: all ranks train to step STEPS.
train() {
  "$bin/deepspeed" --num_procs "$procs" "$gpt2" --deepspeed_config "$config" "${data[@]}" \
    --steps "$1" --loss_log "$2" --log_every $((steps / 12)) "${@:3}"
}

stage "Training on $procs ranks with ZeRO-2, $steps steps"
train "$steps" losses.txt --eval_every "$earlier" --save_dir checkpoints --save_every "$earlier"

stage "Resuming at step $earlier and training $overlap steps again"
train $((earlier + overlap)) losses-resumed.txt --resume checkpoints --resume_tag "global_step$earlier"

stage "Losses of the same steps, uninterrupted and resumed"
sed -n "$((earlier + 1)),$((earlier + overlap))p" losses.txt >losses-compared.txt
paste -d ' ' losses-compared.txt losses-resumed.txt |
  awk -v every=$((overlap / 5)) 'NR % every == 1 { printf "step %-6s %-20s %s\n", $1, $2, $4 }'
cmp -s losses-compared.txt losses-resumed.txt ||
  fail "the resumed run differs; compare $output/losses-compared.txt with losses-resumed.txt"
echo "all $overlap losses are identical"

stage "One fp32 file of the weights: demo-output/fp32/pytorch_model.bin"
"$bin/zero_to_fp32" checkpoints fp32

stage "Text sampled from that file"
"$gpt2" --fp32_weights fp32/pytorch_model.bin --save_dir checkpoints --sample "$samples"

stage "Done: set up and built in $((set_up - started)) s, the rest took $((SECONDS - set_up)) s"
