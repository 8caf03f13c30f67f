"""`python -m fakecloud` and the console script `fakecloud`."""

from fakecloud.cli import commands


def main() -> None:
    """Run the command line; exits the process with 0, 1 (the cloud said no) or 2 (bad usage or configuration)."""
    commands.fakecloud(prog_name="fakecloud")


if __name__ == "__main__":
    main()
