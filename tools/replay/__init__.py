"""The past of simulated fleets, in a real Prometheus.

`fleet` plays nodes through the real exporter at simulated times, `tape` keeps what a scrape would have
given, `blocks` puts it into a folder that Prometheus serves, `rules` records rules over it and `firing`
says which alerts would have fired.
"""
