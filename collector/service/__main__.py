"""`python -m collector.service`: the same as `ldp-collector`."""

import sys

if __name__ == "__main__":  # a worker process imports this file too, and must not start anything
    from collector.service.cli import main

    sys.exit(main())
