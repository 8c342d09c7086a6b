"""Files of a CPU network's launch list, known without TVM."""

FORMAT = "socsched-cpu-1"
LIST, CONSTANTS = "launches.json", "constants.bin"
