"""What is made from the chart's values.yaml: its schema, its README, and its defaults without comments."""
