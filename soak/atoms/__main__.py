"""`python -m soak.atoms`."""

import sys

from soak.atoms.run import main

sys.exit(main())
