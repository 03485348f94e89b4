"""Lists and watches the pods of one node through the official client, as plain JSON.

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes

Only the client's configuration, credentials and connections are used, not its models: these would cost
more memory than all the rest of the exporter. The client is imported only here, and this module only with
--kubernetes.
"""

import json
import os
import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import urllib3
import yaml
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config

from gputally.attribution.kubernetes_pod import mapping, sequence, text
from gputally.model import Unavailable

RBAC_RULE = (
    'a ClusterRole with the rule {apiGroups: [""], resources: [pods], verbs: [list, watch]} and, for '
    '--node-labels, {apiGroups: [""], resources: [nodes], verbs: [get]}'
)
_CHECK_CREDENTIALS = (
    "mount the service account's token (automountServiceAccountToken: true), or renew the kubeconfig"
)
_CHECK_NETWORK = "check that this node reaches the API server: network policies, proxy, DNS, certificates"

_CONNECT_SECONDS = 5.0
_LIST_SECONDS = 30.0
_PAGE = 100
_MAX_PAGE_BYTES = 128 << 20
_MAX_EVENT_BYTES = 8 << 20  # etcd stores no object larger than about 1.5 MB
_GONE = 410


class Gone(Unavailable):
    """The requested version is too old for the API server: a new list is needed."""


class InvalidResponse(Unavailable):
    """The response is not valid; a change may have been missed."""


class Forbidden(Unavailable):
    """The credentials do not permit the request."""


class NodePods:
    """A connection to the API server, for the pods of one node. For one thread, except `interrupt`."""

    def __init__(self, node: str, kubeconfig: Path | None) -> None:
        configuration = _configuration(kubeconfig)
        self._host = configuration.host
        self._node = node
        self._client: Any = ApiClient(configuration)
        self._client.user_agent = "gputally"
        self._reading = threading.Lock()
        self._response: urllib3.HTTPResponse | None = None
        self._interrupted = False

    def pages(self, resource_version: str) -> Generator[tuple[list[object], str]]:
        """Pages of pods, each with the version to watch from after the last one.

        Version "0" lists from the API server's cache, the empty one lists the latest state.
        """
        page = ""
        while True:
            versions = [("continue", page)] if page else [("resourceVersion", resource_version)]
            with self._get_pods("list", [*versions, ("limit", str(_PAGE))], _LIST_SECONDS) as response:
                body = _read_page(response)
            metadata = mapping(body.get("metadata"))
            if not text(metadata.get("resourceVersion")):
                raise InvalidResponse("the API server's response is not a list of pods")
            yield sequence(body.get("items")), text(metadata.get("resourceVersion"))
            page = text(metadata.get("continue"))
            if not page:
                return

    def watch(self, resource_version: str, seconds: int) -> Generator[tuple[str, object] | None]:
        """None once the API server accepts the watch, then each event; it ends the watch after `seconds`."""
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", resource_version),
            ("timeoutSeconds", str(seconds)),
        ]
        with self._get_pods("watch", query, seconds + _LIST_SECONDS) as response:
            yield None
            for line in _lines(response):
                event = _json_object(line)
                kind, item = text(event.get("type")), event.get("object")
                if kind == "ERROR":
                    raise _error("watch pods", mapping(item))
                yield kind, item

    def node(self) -> dict[str, object]:
        """The node's own object. Raises Forbidden without permission to get nodes."""
        path = f"/api/v1/nodes/{quote(self._node, safe='')}"
        with self._get("get nodes", path, [], _LIST_SECONDS) as response:
            return _read_page(response)

    def interrupt(self) -> None:
        """Ends the current wait for the API server; callable from any thread."""
        with self._reading:
            self._interrupted = True
            if self._response is not None:
                with suppress(OSError, ValueError, RuntimeError):  # it has just ended
                    self._response.shutdown()

    def close(self) -> None:
        self._client.close()

    def _get_pods(self, verb: str, query: list[tuple[str, str]], read_seconds: float) -> "_OpenBody":
        selector = ("fieldSelector", f"spec.nodeName={self._node}")
        return self._get(f"{verb} pods", "/api/v1/pods", [selector, *query], read_seconds)

    def _get(self, doing: str, path: str, query: list[tuple[str, str]], read_seconds: float) -> "_OpenBody":
        try:
            method, url, headers, *_ = self._client.param_serialize(
                "GET",
                path,
                query_params=query,
                header_params={"Accept": "application/json"},
                auth_settings=["BearerToken"],
            )
            timeout = (_CONNECT_SECONDS, read_seconds)
            answer = self._client.call_api(method, url, headers, _request_timeout=timeout)
            response: urllib3.HTTPResponse = answer.response
            if response.status != 200:
                with response:
                    body = response.read(1 << 16)
                raise _error(doing, {**_status_object(body), "code": response.status})
        except ConfigException as error:
            raise Unavailable(f"the credentials cannot be read: {error}", _CHECK_CREDENTIALS) from error
        except (ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unreachable(error) from error
        return _OpenBody(self, response)

    def _unreachable(self, error: Exception) -> Unavailable:
        why = text(getattr(error, "reason", "")) or str(error)
        return Unavailable(f"{self._host} is not reachable: {' '.join(why.split())}", _CHECK_NETWORK)

    def _register(self, response: urllib3.HTTPResponse | None) -> None:
        with self._reading:
            self._response = response
            if response is not None and self._interrupted:
                response.close()


class _OpenBody:
    """A body that is being read; errors of the connection become `Unavailable`."""

    def __init__(self, pods: NodePods, response: urllib3.HTTPResponse) -> None:
        self._pods = pods
        self.response = response

    def __enter__(self) -> urllib3.HTTPResponse:
        self._pods._register(self.response)
        return self.response

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._pods._register(None)
        self.response.close()
        if isinstance(error, urllib3.exceptions.HTTPError | OSError):
            raise self._pods._unreachable(error) from error


def _configuration(kubeconfig: Path | None) -> Any:
    """From the given kubeconfig, else from the cluster we run in, else from the user's kubeconfig."""
    configuration: Any = Configuration()
    configuration.retries = False  # `kubernetes` decides when to retry
    configuration.keep_alive = True
    try:
        if kubeconfig is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            file = None if kubeconfig is None else str(kubeconfig)
            load_kube_config(  # type: ignore[no-untyped-call]
                config_file=file, client_configuration=configuration, persist_config=False
            )
    except (ConfigException, OSError, yaml.YAMLError, ValueError, TypeError, AttributeError) as error:
        # The client does not validate a kubeconfig: a missing part raises any of these.
        why = " ".join(str(error).split())
        fix = (
            "run in a cluster with a service account's token mounted, or set KUBECONFIG to a kubeconfig file"
        )
        raise Unavailable(f"no cluster is configured: {why}", fix) from error
    return configuration


def _error(doing: str, status: dict[str, object]) -> Unavailable:
    """The error that a Status object of the API server stands for (kind: Status)."""
    code, message = status.get("code"), " ".join(text(status.get("message")).split())[:300]
    details = f" ({message})" if message else ""
    match code:
        case 401:
            return Forbidden(
                f"the API server does not accept the credentials: 401{details}", _CHECK_CREDENTIALS
            )
        case 403:
            return Forbidden(f"the API server does not permit to {doing}: 403{details}", f"grant {RBAC_RULE}")
        case 410:
            return Gone(f"the API server no longer has that version: {_GONE}{details}")
    return Unavailable(f"the API server cannot {doing} now: {code}{details}")


def _status_object(body: bytes) -> dict[str, object]:
    try:
        return _json_object(body)
    except InvalidResponse:
        return {}  # a proxy's page: only the status code is known


def _read_page(response: urllib3.HTTPResponse) -> dict[str, object]:
    body = response.read(_MAX_PAGE_BYTES)
    if len(body) == _MAX_PAGE_BYTES:
        raise InvalidResponse(f"the list of pods is larger than {_MAX_PAGE_BYTES >> 20} MiB")
    return _json_object(body)


def _lines(response: urllib3.HTTPResponse) -> Iterator[bytes]:
    pending = bytearray()
    for piece in response.stream(1 << 16):
        pending += piece
        *lines, rest = pending.split(b"\n")
        yield from (bytes(line) for line in lines if line.strip())
        pending = bytearray(rest)
        if len(pending) > _MAX_EVENT_BYTES:
            raise InvalidResponse(f"a pod is larger than {_MAX_EVENT_BYTES >> 20} MiB")


def _json_object(body: bytes) -> dict[str, object]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidResponse(f"the API server's response is not JSON: {body[:80]!r}") from error
    if not isinstance(found, dict):
        raise InvalidResponse(f"the API server's response is not a JSON object: {body[:80]!r}")
    return found
