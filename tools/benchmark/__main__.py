import sys

from tools.benchmark.main import main

sys.exit(main())
