"""`python -m gputally`."""

import sys

from gputally.cli import main

sys.exit(main())
