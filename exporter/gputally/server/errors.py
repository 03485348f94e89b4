"""Why the server cannot start: each message is one line for the operator."""


class ServerError(Exception):
    """Base of all."""


class ListenError(ServerError):
    """An address cannot be understood or listened on."""


class PathError(ServerError):
    """The metrics cannot be served on this path."""


class WebConfigError(ServerError):
    """The web configuration cannot be used; the message names the file and the key."""
