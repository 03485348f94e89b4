"""Looking into JSON from the API server without trusting its shape: what is not as expected is empty."""


def mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def text(value: object) -> str:
    return value if isinstance(value, str) else ""
