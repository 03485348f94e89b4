"""The words of docs/performance.md: how to read its figures."""

from tools.benchmark.rounds import Effort


def method(effort: Effort) -> str:
    return f"""\
- There are {effort.rounds} rounds. In each, every exporter has its turn, is started afresh and has the
  machine to itself. A figure is the middle of the rounds, with the least and the most in brackets.
- Exporters that sample on their own do so every {effort.interval_seconds} s here, which is our default.
- Scrapes go over loopback, one after the other, on one connection for as long as the exporter keeps it
  open, from a client with raw sockets and a prepared request: {effort.scrapes:,} to warm up, then half
  as many, for {effort.scrape_seconds:g} s at least, which are timed. Plain text, no compression.
- "As Prometheus asks" is the same with the headers that Prometheus 3 sends: OpenMetrics and gzip, where
  the exporter offers them. The floor answers plain bytes whatever it is asked.
- RSS is the resident memory of the process and its children: after its second sample, and after the
  {effort.scrapes:,} scrapes that warm it up. What the stand-in takes is in it, alike for all.
- CPU is the user and system time of the process and its children, from the process's CPU clock.
- Idle CPU is over {effort.idle_seconds:g} s in which nobody scrapes, "sampled and scraped" over as long
  with scrapes as Prometheus makes them. All exporters run side by side for that. An exporter that reads
  the GPUs only when it is scraped costs nothing when idle.
- The start is from the start of the process to its first answer that has all GPUs in it.
- Answers per second are those of {effort.clients} clients in one process, which ask again as soon as
  they have an answer. For the floor, and nearly so for us, that is the client's limit, not the server's.
- The tables of growing nodes show the least of {effort.scaling_rounds} rounds. CPU per sample is that
  of reading alone, when nobody scrapes; "and scrape" is with one scrape for each sample: reading,
  rendering and serving.
- Growth is linear when a GPU or process of the last step costs no more than those of the steps before,
  give or take the noise of the measurement: half as much again is still called linear.
- The large fleet is four nodes of different models, played through the real exporter for its last
  minutes, and clones of them with other names, GPUs and pods, all in one Prometheus, with the rules
  recorded. Of the series that the dashboard reads over hours, the hours before are made of the last
  values. A query is asked once to bring the data into memory and then three times; its time is the
  middle of these, from the request to the last byte. Rules are asked in the same way, and counted."""


NOT_MEASURED = """\
- A real driver's time. The stand-in answers in about a microsecond, a driver in microseconds to
  milliseconds per call, alike for all who make the call. None of it falls into a scrape of GPUTally,
  because sampling runs on its own; all of it falls into the scrape of an exporter that reads when asked.
- TLS, basic auth, and networks other than loopback.
- Exporters that are in no package registry, unless they were on PATH.
- Rules that look back for days (anomalies), with so many days behind them, on the large fleet.
- Other machines: the order is what carries over, not the milliseconds."""
