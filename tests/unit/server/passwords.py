"""Basic authentication, from the client's side."""

import base64

import bcrypt


def hashed(password: str, rounds: int = 4) -> str:
    """A bcrypt hash that is quick to verify."""
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(rounds)).decode()


def basic(user: str, password: str) -> str:
    """The Authorization header."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
