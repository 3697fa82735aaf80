"""Resident memory of this process, read without importing anything that a contender might."""

import sys


def resident_kib() -> int:
    """Resident set size now, in KiB (the peak where the system tells no more)."""
    return _status("VmRSS:") or peak_resident_kib()


def peak_resident_kib() -> int:
    """Highest resident set size of this process so far, in KiB."""
    return _status("VmHWM:") or _peak_by_rusage()


def _status(field: str) -> int | None:
    try:
        with open("/proc/self/status", encoding="ascii") as lines:  # noqa: PTH123 - pathlib would be one more import
            return next((int(line.split()[1]) for line in lines if line.startswith(field)), None)
    except OSError:
        return None


def _peak_by_rusage() -> int:
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak
