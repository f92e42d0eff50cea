"""The commands, where the script `leaseway` isn't installed: python -m chalicelib.cli."""

from . import main

main()
