from gputally.server.messages import encode_head, text_response


def test_the_date_is_the_one_the_standard_prints() -> None:
    assert b"\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n" in encode_head(
        text_response(200, "ok"), 784111777.9, True
    )


def test_a_head_ends_with_an_empty_line_and_says_whether_the_connection_stays() -> None:
    response = text_response(503, "busy", ("Retry-After", "1"))
    head = encode_head(response, 0.0, keep_alive=False)
    assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert head.endswith(b"\r\nRetry-After: 1\r\n\r\n")
    assert b"\r\nConnection: close\r\n" in head
    assert b"\r\nConnection: keep-alive\r\n" in encode_head(response, 0.0, keep_alive=True)
    assert b"\r\nContent-Length: 5\r\n" in head
