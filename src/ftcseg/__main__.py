"""`python -m ftcseg` is the same as `ftcseg`."""

from ftcseg.cli import main

if __name__ == "__main__":  # worker processes import this module too
    main()
