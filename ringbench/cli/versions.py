"""What is installed beside ringbench: the versions that a report of a fault needs."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, distributions, version

from ringbench.records.libraries import library_name
from ringbench.records.provenance import package_version


def versions() -> str:
    """Return a line for ringbench and for each of what it stands on; MPI is loaded for it, but not started.

    What is not there, or does not load, is said so.
    """
    lines = {
        "ringbench": package_version(),
        "Python": platform.python_version(),
        "NumPy": _version("numpy"),
        "mpi4py": _version("mpi4py"),
        "MPI": _library(),
        "CuPy": _cupy(),
    }
    return "".join(f"{name} {found}\n" for name, found in lines.items())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not found"


def _library() -> str:
    from ringbench.runtime.world import library_version

    try:
        return library_name(library_version())
    except ValueError as error:
        return f"not found: {error}"


def _cupy() -> str:
    """Return the package by its name: there is one for each version of CUDA."""
    found = {str(one.metadata["Name"]): one.version for one in distributions() if one.metadata["Name"]}
    named = [f"{number} ({name})" for name, number in sorted(found.items()) if name.lower().startswith("cupy")]
    return ", ".join(named) or "not found"
