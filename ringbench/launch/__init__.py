"""Where it runs: what the launcher says, MPI jobs started and ended from outside. Needs neither mpi4py nor numpy."""
