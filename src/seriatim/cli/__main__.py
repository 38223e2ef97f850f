"""`python -m seriatim.cli`: the command line where its script is not on the PATH."""

from seriatim.cli import main

main()
