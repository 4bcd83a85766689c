"""The schedule language, its registry, and the readers that need no MPI."""
