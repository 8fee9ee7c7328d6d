"""Names of the launcher that clients import; the launcher itself is the program `deepspeed`."""
import os

DEEPSPEED_ENVIRONMENT_NAME = os.getenv("DS_ENV_FILE", ".deepspeed_env")


def main(args=None):
    """Runs the launcher in place of this process."""
    import sys

    from deepspeed.launcher import programs

    if args is not None:
        sys.argv[1:] = args
    programs.deepspeed()


if __name__ == "__main__":
    main()
