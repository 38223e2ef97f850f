"""`python -m soak.peers`."""

import sys

from soak.peers.run import main

sys.exit(main())
