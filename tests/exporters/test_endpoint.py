from __future__ import annotations

import pytest
from ragmeter_exporters.endpoint import DeliveryEndpoint

from tests.tables import each_row


def test_credentials_are_taken_out_of_a_url() -> None:
    endpoint = DeliveryEndpoint.parse("https://us%40er:p%3Ass@hooks.example:8443/T0/key?token=x")
    assert endpoint.url == "https://hooks.example:8443/T0/key?token=x"
    assert endpoint.auth == ("us@er", "p:ss")
    assert endpoint.shown == "https://hooks.example:8443"
    assert DeliveryEndpoint.parse("http://[::1]:9093/x").url == "http://[::1]:9093/x"


@each_row("url", ["", "hooks.example", "ftp://u:secret@h/x", "http://", "http://[x"])
def test_a_url_that_cannot_be_used_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match="URL") as caught:
        DeliveryEndpoint.parse(url)
    assert "secret" not in str(caught.value)
