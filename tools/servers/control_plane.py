"""A real Kubernetes API server on the loopback address, with etcd and the controllers, without nodes.

Objects are validated, defaulted, owned and deleted as in any cluster. Pods stay pending.
"""

import http
import json
import os
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme

from tools import Failed
from tools.dependencies import programs
from tools.servers.children import Child, Children
from tools.servers.ports import HOST, free_port
from tools.servers.waiting import responds, wait_until

_SECONDS_TO_START = 60
_SECONDS_TO_RESPOND = 30
_SECONDS_TO_STOP = 5
_SERVICE_ADDRESSES = "10.96.0.0/16"
_SERVER_NAMES = (HOST, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_ISSUER = "https://kubernetes.default.svc.cluster.local"


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A running control plane, with the administrator's credentials."""

    directory: Path
    port: int
    host: str = HOST

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    @property
    def authority(self) -> Path:
        """The certificate of the authority that signed the server's."""
        return self.directory / "authority.crt"

    @property
    def certificate(self) -> Path:
        return self.directory / "administrator.crt"

    @property
    def key(self) -> Path:
        return self.directory / "administrator.key"

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables for kubectl and helm: this cluster, and no configuration of the user."""
        return {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(self.directory / "kube-cache"),
            **{f"HELM_{home}_HOME": str(self.directory / "helm") for home in ("CACHE", "CONFIG", "DATA")},
        }

    def kubectl(self, *arguments: str | Path, given: str = "") -> str:
        """The output of kubectl, with `given` as its input. Raises Failed with its error."""
        ran = subprocess.run(
            [programs.path("kubectl"), *arguments],
            input=given,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            raise Failed(f"kubectl {' '.join(map(str, arguments))}: {ran.stderr.strip()}")
        return ran.stdout

    def api(self, path: str, accept: str = "application/json") -> Any:
        """The response to a GET. Raises Failed with the error that the server returns."""
        request = urllib.request.Request(self.url + path, headers={"Accept": accept})

        def get() -> list[Any]:
            try:
                with urllib.request.urlopen(
                    request, timeout=_SECONDS_TO_RESPOND, context=self._tls()
                ) as response:
                    return [json.load(response)]
            except urllib.error.HTTPError as error:
                with error:
                    # A resource that has just been defined cannot be read at once.
                    if error.code == http.HTTPStatus.TOO_MANY_REQUESTS:
                        return []
                    raise Failed(f"{path}: {error.read().decode(errors='replace')}") from None

        (found,) = wait_until(get, f"{path} can be read", _SECONDS_TO_RESPOND)
        return found

    def responds(self, path: str) -> bool:
        return responds(self.url + path, self._tls())

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority))
        context.load_cert_chain(self.certificate, self.key)
        return context


@contextmanager
def running(directory: Path, *, scheduler: bool = False) -> Iterator[ControlPlane]:
    """A control plane on free ports until the block ends.

    Keys, objects and one log per program are written to `directory`.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    plane = ControlPlane(directory, free_port())
    write_certificates(plane)
    write_kubeconfig(plane, "administrator", plane.kubeconfig)
    store, peers = (f"http://{HOST}:{free_port()}" for _ in range(2))
    with Children(_SECONDS_TO_STOP) as children:

        def start(name: str, flags: list[str]) -> None:
            command: list[str | Path] = [programs.path(name), *flags]
            children.start(Child(name, command, directory, directory / f"{name}.log"))

        start("etcd", etcd_flags(directory, store, peers))
        # The API server's own Service must not have an endpoint on the loopback address.
        start(
            "kube-apiserver",
            [
                *api_server_flags(plane, store, _SERVICE_ADDRESSES),
                "--endpoint-reconciler-type=none",
                # An address for documentation, which has no use here: without one, a default route is needed.
                "--advertise-address=192.0.2.1",
            ],
        )
        # The other programs exit after ten seconds without it.
        _wait_for(plane, "/readyz", children)
        start("kube-controller-manager", controller_flags(plane))
        if scheduler:
            start("kube-scheduler", scheduler_flags(plane))
        # Pods are rejected until this account exists.
        _wait_for(plane, "/api/v1/namespaces/default/serviceaccounts/default", children)
        yield plane
        children.check()


def write_certificates(plane: ControlPlane, *addresses: str) -> trustme.CA:
    """Writes the certificates of the server, valid for these addresses too, and of the administrator.

    Returns the authority that signed them.
    """
    authority = trustme.CA()
    authority.cert_pem.write_to_path(plane.authority)
    certificates = {
        "server": authority.issue_cert(*_SERVER_NAMES, *addresses, common_name="kube-apiserver"),
        # Members of this group may do everything, independent of roles.
        "administrator": authority.issue_cert(
            "administrator", common_name="administrator", organization_name="system:masters"
        ),
        "tokens": authority.issue_cert("tokens"),
    }
    for name, issued in certificates.items():
        write_certificate(plane, name, issued)
    return authority


def write_certificate(plane: ControlPlane, name: str, issued: trustme.LeafCert) -> None:
    issued.cert_chain_pems[0].write_to_path(plane.directory / f"{name}.crt")
    issued.private_key_pem.write_to_path(plane.directory / f"{name}.key")


def write_kubeconfig(plane: ControlPlane, name: str, file: Path) -> None:
    """Writes a kubeconfig with the certificate of this name."""
    cluster = {"server": plane.url, "certificate-authority": str(plane.authority)}
    user = {
        "client-certificate": str(plane.directory / f"{name}.crt"),
        "client-key": str(plane.directory / f"{name}.key"),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
        "current-context": "test",
    }
    # JSON is valid YAML.
    file.write_text(json.dumps(config))


def etcd_flags(directory: Path, store: str, peers: str) -> list[str]:
    return [
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={store}",
        f"--advertise-client-urls={store}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        # The data is not needed after the block.
        "--unsafe-no-fsync",
    ]


def api_server_flags(plane: ControlPlane, store: str, service_addresses: str) -> list[str]:
    directory = plane.directory
    return [
        f"--etcd-servers={store}",
        f"--bind-address={plane.host}",
        f"--secure-port={plane.port}",
        f"--tls-cert-file={directory / 'server.crt'}",
        f"--tls-private-key-file={directory / 'server.key'}",
        f"--client-ca-file={plane.authority}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        f"--service-account-issuer={_ISSUER}",
        f"--service-account-key-file={directory / 'tokens.key'}",
        f"--service-account-signing-key-file={directory / 'tokens.key'}",
        f"--service-cluster-ip-range={service_addresses}",
    ]


def controller_flags(plane: ControlPlane) -> list[str]:
    return [
        f"--kubeconfig={plane.kubeconfig}",
        f"--root-ca-file={plane.authority}",
        f"--service-account-private-key-file={plane.directory / 'tokens.key'}",
        "--leader-elect=false",
        "--secure-port=0",
        # With the default of 20 per second the controllers take five seconds to start.
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
    ]


def scheduler_flags(plane: ControlPlane) -> list[str]:
    return [f"--kubeconfig={plane.kubeconfig}", "--leader-elect=false", "--secure-port=0"]


def _wait_for(plane: ControlPlane, path: str, children: Children) -> None:
    wait_until(
        lambda: plane.responds(path),
        f"Kubernetes responds to {path}; logs are in {plane.directory}",
        _SECONDS_TO_START,
        check=children.check,
    )
