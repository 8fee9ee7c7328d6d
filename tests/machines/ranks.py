"""What the ranks of the tests run: ranks.py FOLDER KIND [arguments]. Each writes into FOLDER what it finds, and then does as KIND says."""

import json
import os
import pathlib
import sys
import time

folder, kind = pathlib.Path(sys.argv[1]), sys.argv[2]
rank = os.environ["RANK"]
names = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_SIZE",
    "CROSS_RANK",
    "CROSS_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SECRET",
    "DEEPSPEED_RESTART_COUNT",
)


def command_lines():
    for entry in pathlib.Path("/proc").iterdir():
        try:
            yield (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue


found = {name: os.environ.get(name) for name in names}
found.update(words=sys.argv[3:], pid=os.getpid(), host=os.uname().nodename, cwd=os.getcwd())
secrets = [os.environ.get(name) or "\0" for name in ("SECRET", "DEEPSPEED_STORE_SECRET")]
found["secret_is_shown"] = any(secret in line for line in command_lines() for secret in secrets)
found["store_is_guarded"] = len(secrets[1])
found["job_is_seen"] = any(name.startswith("DEEPSPEED_JOB") for name in os.environ)
name = f"rank{rank}.{os.environ.get('DEEPSPEED_RESTART_COUNT', '0')}"
(folder / f"{name}.new").write_text(json.dumps(found))
(folder / f"{name}.new").rename(folder / name)
print(f"output of rank {rank}", flush=True)
if kind == "wait":
    time.sleep(3600)
if kind == "wait_first" and int(os.environ.get("DEEPSPEED_RESTART_COUNT", "0")) < int(os.environ.get("DS_TEST_WAITS", "1")):
    time.sleep(3600)
if kind == "fail" and rank == "3":
    sys.exit(7)
