"""How a schedule runs on MPI: arrays, plans, the library's own calls, timing."""
