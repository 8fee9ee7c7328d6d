"""Tells a rank that MPICH has started its place, and becomes the script."""

import argparse
import os
import sys

_RANKS = ("PMIX_RANK", "PMI_RANK")
_LOCAL_RANKS = ("PALS_LOCAL_RANKID", "MPI_LOCALRANKID")


def parse_args(args=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launcher", type=str, default="mpich", help="mpich")
    parser.add_argument("--module", action="store_true", help="the script is the name of a module")
    parser.add_argument("--no_python", action="store_true", help="run the script as the executable that it is")
    parser.add_argument("user_script", type=str)
    parser.add_argument("user_args", nargs=argparse.REMAINDER)
    return parser.parse_args(args=args)


def env_mapping(env, rank_name_list=_RANKS, local_rank_name_list=_LOCAL_RANKS):
    """Writes RANK and LOCAL_RANK from the launcher's variables. Raises EnvironmentError where they are missing or differ."""
    for name, sources in (("RANK", rank_name_list), ("LOCAL_RANK", local_rank_name_list)):
        values = {env[source] for source in sources if source in env}
        if len(values) != 1:
            raise EnvironmentError(f"{name}: got {sorted(values)} from {', '.join(sources)}, expected one number")
        env[name] = values.pop()
    return env


def main(args=None):
    args = parse_args(args)
    if args.launcher.lower() != "mpich":
        raise NotImplementedError(f"Unknown launcher {args.launcher}")
    python = [] if args.no_python else [sys.executable, "-u"] + (["-m"] if args.module else [])
    command = [*python, args.user_script, *args.user_args]
    os.execvpe(command[0], command, env_mapping(dict(os.environ)))


if __name__ == "__main__":
    main()
