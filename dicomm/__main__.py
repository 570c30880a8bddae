"""``python -m dicomm`` is the ``dicomm`` command."""

from dicomm.cli import main

if __name__ == "__main__":
    main(prog_name="dicomm")
