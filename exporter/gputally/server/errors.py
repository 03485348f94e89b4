"""Errors at start-up: each message is one line for the administrator."""


class ServerError(Exception):
    """Base of all."""


class ListenError(ServerError):
    """An address is malformed or cannot be listened on."""


class PathError(ServerError):
    """A path cannot be served."""


class WebConfigError(ServerError):
    """The web configuration is invalid; the message names the file and the key."""
