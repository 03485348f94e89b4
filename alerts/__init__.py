"""Alert rules, recording rules and routing as data, and the templates that make manifests of them."""
