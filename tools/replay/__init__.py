"""tools/history: the history of a simulated fleet, in a real Prometheus.

`fleet` runs nodes through the real exporter at simulated times, `tape` encodes what each scrape returns,
`blocks` writes it to a directory that Prometheus serves, `rules` records rules over it and `firing` finds the
alerts that would have fired.
"""
