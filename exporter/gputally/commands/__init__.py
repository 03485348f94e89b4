"""The commands beside `serve` and `simulate`: one module or package each."""
