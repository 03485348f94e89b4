"""What RFC 9112 calls a valid request: the status of its refusal, or None; by section of the standard."""

VERDICTS: dict[str, tuple[bytes, int | None]] = {
    # 2.2: message parsing
    "empty lines before the request": (b"\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", None),
    "lines end with LF": (b"GET / HTTP/1.1\nHost: x\n\n", 400),
    "bare CR in a value": (b"GET / HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n", 400),
    "blank before the first header": (b"GET / HTTP/1.1\r\n Host: x\r\nHost: y\r\n\r\n", 400),
    # 2.3 and 3: request line
    "lower-case method": (b"get / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "lower-case protocol": (b"GET / http/1.1\r\nHost: x\r\n\r\n", 400),
    "two digits of a version": (b"GET / HTTP/01.1\r\nHost: x\r\n\r\n", 400),
    "unknown minor version": (b"GET / HTTP/1.2\r\nHost: x\r\n\r\n", 400),
    "tabs": (b"GET\t/\tHTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "blank after the version": (b"GET / HTTP/1.1 \r\nHost: x\r\n\r\n", 400),
    "control character in the target": (b"GET /\x01 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "byte above ASCII in the target": (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "target without a slash": (b"GET metrics HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    # 3.2: Host
    "no Host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "no Host in HTTP/1.0": (b"GET / HTTP/1.0\r\n\r\n", None),
    "two Hosts": (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
    "the same Host twice": (b"GET / HTTP/1.1\r\nHost: x\r\nhOST: x\r\n\r\n", 400),
    "two Hosts in HTTP/1.0": (b"GET / HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n", 400),
    "empty Host": (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", None),
    "blanks around the Host": (b"GET / HTTP/1.1\r\nHost: \t x:9400 \t\r\n\r\n", None),
    "IPv6 address": (b"GET / HTTP/1.1\r\nHost: [2001:db8::1]:9400\r\n\r\n", None),
    "Host with a blank": (b"GET / HTTP/1.1\r\nHost: x y\r\n\r\n", 400),
    "Host with a path": (b"GET / HTTP/1.1\r\nHost: x/y\r\n\r\n", 400),
    "Host with a user": (b"GET / HTTP/1.1\r\nHost: u@x\r\n\r\n", 400),
    "Host and another one in the target": (b"GET http://y/ HTTP/1.1\r\nHost: x\r\n\r\n", None),
    # 5: header fields
    "blank before the colon": (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
    "no name": (b"GET / HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n", 400),
    "no colon": (b"GET / HTTP/1.1\r\nHost: x\r\nBad Header\r\n\r\n", 400),
    "NUL in a value": (b"GET / HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n", 400),
    "folded line": (b"GET / HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n", 400),
    # 6: the length of the body
    "length of 20 digits": (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: %020d\r\n\r\nx" % 1, None),
    "length of 21 digits": (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: %021d\r\n\r\nx" % 1, 400),
    "length of 5,000 zeros": (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: %05000d\r\n\r\n" % 0, 400),
    "length above 64 bits": (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % 2**64, 400),
    "negative length": (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
    "length with a sign": (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\nx", 400),
    "length in hexadecimal": (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x1\r\n\r\nx", 400),
    "empty length": (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\n", 400),
    "list of lengths": (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 1\r\n\r\nx", 400),
    "two lengths": (
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        400,
    ),
    "length, then coding": (
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
    ),
    "coding, then length": (
        b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
        400,
    ),
    "coding in HTTP/1.0": (b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    "coding that does not end with chunked": (
        b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
        400,
    ),
    "hidden coding": (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0bchunked\r\n\r\n", 400),
    "chunked": (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
}
