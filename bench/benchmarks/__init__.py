"""One module per benchmark, each with `run(context) -> list[Figure]`; a module that is here is found."""
