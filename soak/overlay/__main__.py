"""`python -m soak.overlay`."""

import sys

from soak.overlay.run import main

sys.exit(main())
