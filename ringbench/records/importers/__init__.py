"""What other benchmarks wrote, as rows: OSU, OMB-Py, IMB, nccl-tests, rccl-tests and plain CSV."""
