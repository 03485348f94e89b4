"""What a text for people states, whatever its words: numbers and terms."""

import re


def numbers(text: str) -> list[int]:
    """The whole numbers in a text, in their order; not those in names and addresses."""
    return [int(number) for number in re.findall(r"(?<![\w.:/-])\d+(?![\w./-]*\w)", text)]


def missing(text: str, *terms: str) -> list[str]:
    """The terms that the text does not contain."""
    return [term for term in terms if term not in text]
