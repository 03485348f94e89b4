"""Alert rules, recording rules and routing as data, and the templates of their manifests."""
