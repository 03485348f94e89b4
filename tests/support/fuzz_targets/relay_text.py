"""Another exporter's text: what is served of it is valid, and reads the same when it is relayed again."""

from gputally.relay.relabel import PodLabels, PodOf, render
from gputally.relay.text import Text
from tests.support.text_format import check_text

CORPUS = [
    b'0# HELP a A.\n# TYPE a gauge\na{gpu="0",pod=""} 1 1731753600125\nb 2\na{gpu="1"} NaN\n',
    b"1# TYPE a counter\n# UNIT a joules\n# HELP a A.\n"
    b'a_total{gpu="0"} 1e3 1.5 # {x="y"} 1\na_created 5\n# EOF\n',
    b'0# TYPE h histogram\nh_bucket{le="+Inf"} 1\nh_sum 1\nh_count 1\n',
    b'0a{b="c",b="d"} 1\na{__name__="b"} 1\na 1e999999\na 1 12345678901234567890123\n \tgputally_gpu_up 1\n',
    b'0DCGM_FI{gpu="0",UUID="GPU-1",GPU_I_ID="2",container="",namespace="",pod=""} 1\n',
    b'0a{b="\\"\\\\\\n\\d\0\xff"} 1\r\n',
]


def _always(pod: PodLabels | None) -> PodOf:
    return lambda _: pod


def one_input(data: bytes) -> None:
    received = Text()
    received.add([data[1:]], openmetrics=data[:1] == b"1")
    for pod in (None, PodLabels('n"\n', "p\\\0", "c\ud800")):
        body = b"".join(text for _, text in render(received.families(), _always(pod)))
        check_text(body)
        again = Text()
        again.add([body], openmetrics=False)
        assert (again.invalid, again.duplicates) == (0, 0)
        assert b"".join(text for _, text in render(again.families(), lambda _: None)) == body or pod
