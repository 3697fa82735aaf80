"""What one import statement costs in a fresh process.

Run as `python import_cost.py "from x import y"`. Nothing but `sys`, `time` and the sibling `memory`
is loaded before the clock starts, so that what a contender pulls in is not already there.
"""

import sys
import time

from memory import resident_kib

resident_before = resident_kib()
before = set(sys.modules)
started = time.process_time_ns()
exec(sys.argv[1])
cpu_ns = time.process_time_ns() - started
loaded = set(sys.modules) - before
resident = resident_kib()

import json  # noqa: E402 - only after the measurement

print(
    json.dumps(
        {
            "cpu_ms": cpu_ns / 1e6,
            "modules": len(loaded),
            "rss_mib": resident / 1024,
            "rss_growth_mib": (resident - resident_before) / 1024,
            "loaded": sorted({name.partition(".")[0] for name in loaded}),
        }
    )
)
