import sys

from tools.benchmark.main import main

if __name__ == "__main__":  # the nodes of the fleet are played in processes that import this
    sys.exit(main())
