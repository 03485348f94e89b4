"""The log: one line per event, as text for people or as JSON for machines."""

import logging
import time
from pathlib import Path

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        import json  # noqa: PLC0415  # text is the default, and memory is dear

        entry = {
            "time": _utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_utc(record.created)} {record.levelname:<7} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _utc(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"


def set_up_logging(level: str, log_format: str, file: Path | None) -> None:
    """Log to standard error, or to a file that may be rotated away under us."""
    handler: logging.Handler = logging.StreamHandler()
    if file is not None:
        from logging.handlers import WatchedFileHandler  # noqa: PLC0415  # memory is dear

        handler = WatchedFileHandler(file)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
