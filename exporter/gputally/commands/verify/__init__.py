"""`gputally verify`: checks an installation from the exporters to the dashboards."""
