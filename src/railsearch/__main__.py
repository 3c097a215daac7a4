"""`python -m railsearch`: the command line, as torchrun starts it."""

from railsearch.cli import main

if __name__ == "__main__":
    main()
