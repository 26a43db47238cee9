"""The entry point of the command: also answers an interrupt that comes while modules are still being imported."""

import sys


def main() -> None:
    """Run the command."""
    try:
        from sightline.cli import main as run
    except KeyboardInterrupt:
        print("sightline: interrupted", file=sys.stderr)
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
