"""The programs of a cluster, each with its flags and its configuration."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tools import ROOT
from tools.dependencies import programs
from tools.servers import control_plane
from tools.servers.control_plane import ControlPlane
from tools.test_cluster import audit, layout
from tools.test_cluster.layout import Layout

PAUSE_IMAGE = "gputally/pause:1"
_STORE = "http://127.0.0.1:2379"
_STORE_PEERS = "http://127.0.0.1:2380"
_KUBELET = "kubelet"
_KUBELET_SERVER = "kubelet-server"


def prepare(place: Layout, images_root: Path) -> None:
    """Writes certificates, configuration and the plan for node.py. Raises Failed."""
    plane = place.plane
    authority = control_plane.write_certificates(
        plane, layout.NODE_ADDRESS, layout.API_SERVICE_ADDRESS, "kubernetes.default.svc.cluster.local"
    )
    control_plane.write_kubeconfig(plane, "administrator", plane.kubeconfig)
    # The kubelet has the permissions of a kubelet only: the tests depend on it.
    kubelet = authority.issue_cert(
        layout.NODE_NAME, common_name=f"system:node:{layout.NODE_NAME}", organization_name="system:nodes"
    )
    control_plane.write_certificate(plane, _KUBELET, kubelet)
    control_plane.write_kubeconfig(plane, _KUBELET, place.directory / "kubelet.kubeconfig")
    server = authority.issue_cert(layout.NODE_NAME, layout.NODE_ADDRESS)
    control_plane.write_certificate(plane, _KUBELET_SERVER, server)

    audit.policy_file(place.directory).write_text(yaml.safe_dump(audit.POLICY))
    (place.directory / "resolv.conf").touch()
    (place.directory / "Corefile").write_text(_corefile(plane))
    (place.directory / "containerd.toml").write_text(_containerd(place, images_root))
    (place.directory / "kubelet.yaml").write_text(yaml.safe_dump(_kubelet(place)))
    (place.directory / "cni" / "10-pods.conflist").write_text(json.dumps(_pod_network(place)))
    place.plan.write_text(json.dumps(_plan(place)))


def _plan(place: Layout) -> dict[str, Any]:
    """The programs that node.py starts; those that need the API server start after it."""
    plane, directory = place.plane, place.directory
    python = [sys.executable, "-P", "-m"]
    commands: Mapping[str, tuple[bool, list[str]]] = {
        "etcd": (False, control_plane.etcd_flags(directory, _STORE, _STORE_PEERS)),
        "kube-apiserver": (False, _api_server(plane)),
        "containerd": (False, [f"--config={directory / 'containerd.toml'}"]),
        "kube-controller-manager": (True, control_plane.controller_flags(plane)),
        "kube-scheduler": (True, control_plane.scheduler_flags(plane)),
        "kubelet": (True, _kubelet_flags(place)),
        "kube-proxy": (True, _proxy(plane)),
        "coredns": (True, [f"-conf={directory / 'Corefile'}"]),
    }
    started = [
        {"name": name, "command": [str(programs.path(name)), *flags], "needs_api": needs_api}
        for name, (needs_api, flags) in commands.items()
    ]
    volumes = {
        "name": "volumes",
        "command": [*python, "tools.test_cluster.volumes", str(directory)],
        "needs_api": True,
    }
    # containerd finds its shim, and kube-proxy nft, on PATH.
    own = {str(programs.path(name).parent) for name in ("containerd-shim-runc-v2", "runc", "nft", "kubectl")}
    return {
        "programs": [*started, volumes],
        "environment": {
            "HOME": str(directory),
            # With another HOME, the same programs.
            programs.CACHE: str(programs.cache()),
            programs.OWN: os.environ.get(programs.OWN, ""),
            "PATH": os.pathsep.join([*sorted(own), os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT),
        },
    }


def _api_server(plane: ControlPlane) -> list[str]:
    return [
        *control_plane.api_server_flags(plane, _STORE, layout.SERVICE_ADDRESSES),
        f"--advertise-address={layout.NODE_ADDRESS}",
        "--enable-admission-plugins=NodeRestriction",
        f"--kubelet-client-certificate={plane.certificate}",
        f"--kubelet-client-key={plane.key}",
        f"--kubelet-certificate-authority={plane.authority}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--audit-policy-file={audit.policy_file(plane.directory)}",
        f"--audit-log-path={audit.log_file(plane.directory)}",
    ]


def _kubelet_flags(place: Layout) -> list[str]:
    return [
        f"--config={place.directory / 'kubelet.yaml'}",
        f"--kubeconfig={place.directory / 'kubelet.kubeconfig'}",
        f"--hostname-override={layout.NODE_NAME}",
        f"--node-ip={layout.NODE_ADDRESS}",
        # The GPU operator's label, by which the chart selects the node.
        "--node-labels=nvidia.com/gpu.present=true",
    ]


def _kubelet(place: Layout) -> dict[str, Any]:
    directory = place.directory
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.CGROUP}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "address": layout.NODE_ADDRESS,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(place.plane.authority)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(directory / f"{_KUBELET_SERVER}.crt"),
        "tlsPrivateKeyFile": str(directory / f"{_KUBELET_SERVER}.key"),
        "clusterDomain": "cluster.local",
        "clusterDNS": [layout.NODE_ADDRESS],
        "resolvConf": str(directory / "resolv.conf"),
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "syncFrequency": "5s",
        "nodeStatusUpdateFrequency": "2s",
        "nodeStatusReportFrequency": "10s",
        "fileCheckFrequency": "2s",
        # An image that is removed to free space cannot be pulled again.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "maxPods": 60,
        "serializeImagePulls": False,
    }


def _containerd(place: Layout, images_root: Path) -> str:
    return f"""\
version = 2
root = "{images_root}"
state = "/run/containerd"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Otherwise runc dies where CAP_SYS_RESOURCE is missing.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{programs.path("cni-plugins").resolve()}"
    conf_dir = "{place.directory / "cni"}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
      BinaryName = "{programs.path("runc")}"
"""


def _pod_network(place: Layout) -> dict[str, Any]:
    addresses = {
        "type": "host-local",
        "dataDir": str(place.directory / "pod-addresses"),
        "ranges": [[{"subnet": layout.POD_ADDRESSES}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge",
        "bridge": layout.BRIDGE,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": addresses,
    }
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}


def _proxy(plane: ControlPlane) -> list[str]:
    return [
        f"--kubeconfig={plane.kubeconfig}",
        f"--hostname-override={layout.NODE_NAME}",
        "--proxy-mode=nftables",
        f"--cluster-cidr={layout.POD_ADDRESSES}",
        f"--bind-address={layout.NODE_ADDRESS}",
        "--healthz-bind-address=127.0.0.1:10256",
        # The cluster must not change limits of the host.
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    ]


def _corefile(plane: ControlPlane) -> str:
    return f"""\
.:53 {{
  errors
  cache 5
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {plane.kubeconfig}
    pods insecure
  }}
}}
"""
