"""The fixed texts of docs/performance.md: how its figures are measured."""

from tools.benchmark.rounds import Effort


def method(effort: Effort) -> str:
    return f"""\
- There are {effort.rounds} rounds. In each round every exporter is started once and runs alone on the
  machine. A figure is the median of the rounds, with minimum and maximum in brackets.
- Exporters that sample on their own do so every {effort.interval_seconds} s here, the default of GPUTally.
- Scrapes go over loopback, one after the other, on one connection for as long as the exporter keeps it
  open, from a client with raw sockets and a prepared request: {effort.scrapes:,} to warm up, then half
  as many, for at least {effort.scrape_seconds:g} s, which are timed. Plain text, no compression.
- "Prometheus headers" is the same with the headers that Prometheus 3 sends: OpenMetrics and gzip, where
  the exporter supports them. The floor always sends plain bytes.
- RSS is the resident memory of the process and its children: after its second sample, and after the
  {effort.scrapes:,} warm-up scrapes. It includes the memory of the stand-in, equally for all.
- CPU is the user and system time of the process and its children, from the process's CPU clock.
- Idle CPU is measured over {effort.idle_seconds:g} s without scrapes, "sampled and scraped" over the same
  time with scrapes as Prometheus sends them. All exporters run side by side for that. An exporter that
  reads the GPUs only when it is scraped costs nothing when idle.
- The start is the time from the start of the process to its first response with all GPUs. Each exporter
  is started once before the first round: files are in memory, and Python's bytecode is compiled, as it is
  after an installation.
- Scrapes per second are those of {effort.clients} clients in one process, each of which sends the next
  request as soon as it has a response. For the floor, and nearly for GPUTally, this is the limit of the
  client, not of the server.
- The tables of scaling show the minimum of {effort.scaling_rounds} rounds. CPU per sample is that of
  reading alone, without scrapes; "and scrape" is with one scrape for each sample: reading, rendering and
  serving.
- Growth is linear if a GPU or process of the last step costs no more than those of the steps before,
  allowing for the noise of the measurement: half as much again still counts as linear.
- The large fleet is four nodes of different models, simulated through the real exporter for its last
  minutes, and clones of them with other names, GPUs and pods, all in one Prometheus, with the rules
  recorded. For series that the dashboard reads over hours, the earlier hours repeat the last values. A
  query runs once to bring the data into memory and then three times; its time is the median of these,
  from the request to the last byte.
- The rules run on such a fleet too, with scrapes every 15 s. How far back each series is needed is found in
  the rules themselves. The scrapes of the last 70 minutes are simulated; earlier ones, and those of records,
  repeat the last value times a factor that changes from sample to sample. Prometheus then loads the rule
  file and evaluates it as always, with a `query_offset` that moves the clock to the time of the data;
  nothing is scraped meanwhile."""


WHERE_COSTS_GO = """\
- Memory: about 8.6 MB are Python itself, 3.4 MB pynvml (455 functions and 374 classes, of which few are
  used), 1.7 MB `dataclasses` with what it imports, 1.4 MB asyncio. Less than 22 MiB takes bindings of our
  own for the functions of NVML that are used; settings of the allocator save 0.2 MB, so there are none.
- Memory at the start: without bytecode the exporter compiles its modules, and uses about 41 MiB for it.
- Threads: one per GPU waits for XIDs, because NVML reports only the last of several that come while no thread
  waits, and each wakes every two seconds. One thread reads the driver, one hands GPUs to it, one finds
  owners, one samples and one serves.
- CPU per sample: most is calls of NVML through pynvml, 29 for each GPU. Less than 2 ms takes fewer of them:
  settings that an administrator changes would be read less often, and changes be seen later."""

NOT_MEASURED = """\
- The time of a real driver. The stand-in responds in about a microsecond, a driver in microseconds to
  milliseconds per call, equally for all callers. None of it is part of a scrape of GPUTally, because
  sampling runs separately; all of it is part of the scrape of an exporter that reads on request.
- TLS, basic auth, and networks other than loopback.
- Exporters that are in no package registry, unless they were on PATH.
- Groups and alerts of rules that are off by default (anomalies).
- Other machines: the order carries over, not the milliseconds."""
