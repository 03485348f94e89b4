"""Stands in for nvidia-smi in tests: prints the asked-for columns of a real capture.

play_nvidia_smi.py CAPTURE VERSION [nvidia-smi's arguments]
"""

import csv
import sys
from pathlib import Path

capture, version = Path(sys.argv[1]), sys.argv[2]
arguments = sys.argv[3:]
text = (capture / f"query-gpu-{version}.csv").read_text()
header, *rows = list(csv.reader(text.splitlines(), skipinitialspace=True))
names = [column.split(" [")[0].strip() for column in header]
asked = next((a.split("=", 1)[1].split(",") for a in arguments if a.startswith("--query-gpu=")), [])

if "--help-query-gpu" in arguments:
    print("\n".join(f'"{name}"\nWhat the column means.\n' for name in names))
elif asked:
    unknown = [name for name in asked if name not in names]
    if unknown:
        print(f'Field "{unknown[0]}" is not a valid field to query.\n')
        sys.exit(2)
    places = [names.index(name) for name in asked]
    for row in [header, *rows]:
        print(", ".join(row[place].strip() for place in places))
else:
    print((capture / "query-compute-apps.csv").read_text(), end="")
