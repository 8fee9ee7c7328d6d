#!/usr/bin/env bash
# Trains on two nodes of two ranks each with a slow link between them, which two network namespaces stand for:
#   benchmarks/comm/two_nodes.sh [FOLDER OF THE BENCHMARKS' PROGRAMS]
# Prints a step's time and the bytes that rank 0 receives from the other node: ZeRO-3 beside ZeRO++, Adam beside
# 1-bit Adam. MBIT and DELAY_MS shape the link (100 Mbit/s, 2 ms each way), STEPS says how many steps are timed. Wants
# root, ip and tc; where the kernel has no netem, slow_link.py is the link, and the first line says so.
set -euo pipefail
programs=$(cd "${1:-build/release/benchmarks}" && pwd)
program=$programs/end_to_end_zero_step
[ -x "$program" ] || { echo "two_nodes.sh: no program $program; scripts/build.sh release benchmarks makes it" >&2; exit 2; }
mbit=${MBIT:-100} delay_ms=${DELAY_MS:-2} steps=${STEPS:-6}
shape="$mbit Mbit/s, $delay_ms ms each way"
name=ds$$
results=$(mktemp -d)
cleanup() {
  ip netns pids ${name}a 2>/dev/null | xargs -r kill -9 || true
  ip netns pids ${name}b 2>/dev/null | xargs -r kill -9 || true
  ip netns del ${name}a 2>/dev/null || true
  ip netns del ${name}b 2>/dev/null || true
  [ -z "${link:-}" ] || kill "$link" 2>/dev/null || true
  rm -rf "$results"
}
trap cleanup EXIT

ip netns add ${name}a
ip netns add ${name}b
ip link add ${name}va netns ${name}a type veth peer name ${name}vb netns ${name}b
if tc -n ${name}a qdisc add dev ${name}va root netem delay 1ms 2>"$results/tc"; then
  for side in a b; do
    tc -n $name$side qdisc replace dev ${name}v$side root netem delay "${delay_ms}ms" rate "${mbit}mbit"
  done
else
  ip -n ${name}a link del ${name}va
  python3 "$(dirname "${BASH_SOURCE[0]}")/slow_link.py" ${name}va ${name}vb --rate "${mbit}e6" \
    --delay "$(python3 -c "print($delay_ms / 1000)")" >"$results/link" &
  link=$!
  for _ in $(seq 100); do [ -s "$results/link" ] || sleep 0.05; done
  [ -s "$results/link" ] || { echo "two_nodes.sh: slow_link.py made no devices" >&2; exit 1; }
  for side in a b; do
    ip link set ${name}v$side netns $name$side
    ip -n $name$side link set ${name}v$side mtu 9000
  done
  shape+=", by slow_link.py: the kernel has no netem"
fi
for side in a:1 b:2; do
  space=$name${side%:*} device=${name}v${side%:*}
  ip -n "$space" addr add 10.77.0.${side#*:}/24 dev "$device"
  ip -n "$space" link set "$device" up
  ip -n "$space" link set lo up
done
echo "Link: $shape."
echo

port=29700
# train LABEL OPTIONS...: runs four ranks and keeps the line that rank 0 prints.
train() {
  local label=$1 rank side
  local ranks=()
  shift
  port=$((port + 1))
  for rank in 0 1 2 3; do
    side=$([ $rank -lt 2 ] && echo a || echo b)
    ip netns exec "$name$side" env RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$((rank % 2)) LOCAL_SIZE=2 \
      MASTER_ADDR=10.77.0.1 MASTER_PORT=$port "$program" --count --steps "$steps" "$@" >"$results/$rank" 2>"$results/$rank.err" &
    ranks+=($!)
  done
  for rank in "${ranks[@]}"; do
    wait "$rank" || { cat "$results"/*.err >&2; exit 1; }
  done
  python3 - "$label" "$results/0" <<'PYTHON'
import json, pathlib, statistics, sys
label, path = sys.argv[1], pathlib.Path(sys.argv[2])
run = json.loads([line for line in path.read_text().splitlines() if line.startswith("{")][-1])
step, between = statistics.median(run["step_ms"]), run["received_bytes_a_step"]["between_nodes"]
base = path.with_name("base")
if not base.exists():
    base.write_text(json.dumps([step, between]))
old_step, old_between = json.loads(base.read_text())
print(f"| {label} | {step:.0f} | {old_step / step:.2f} | {between / 1e6:.2f} | {between / old_between:.3f} | {run['losses'][-1][0]:.4f} |")
PYTHON
}
header() {
  rm -f "$results/base"
  echo "| $1 | step (ms) | times as fast | MB from the other node | of the first row's | last loss |"
  echo "|---|---|---|---|---|---|"
}

model=(--width 256 --layers 4 --vocabulary 1024 --context 32)
header "bf16, stage 3"
train "ZeRO-3" --stage 3 "${model[@]}" --config '{"bf16": {"enabled": true}}'
train "ZeRO++" --stage 3 "${model[@]}" --config '{"bf16": {"enabled": true}, "zero_optimization":
  {"zero_quantized_weights": true, "zero_hpz_partition_size": 2, "zero_quantized_gradients": true}}'
echo
header "fp32, stage 0"
train "Adam" --stage 0 "${model[@]}" --clipping 0 --config '{"optimizer": {"type": "Adam"}}'
train "1-bit Adam" --stage 0 "${model[@]}" --clipping 0 --warmup 4 --config '{"optimizer": {"type": "OneBitAdam",
  "params": {"freeze_step": 3}}}'
