"""SaslHandshake (key 17): choose a SASL mechanism."""

from pyclient.protocol.fields import Int16, Request, Response, api


@api(key=17, versions=(0, 1), flexible=None)
class SaslHandshakeResponse(Response):
    error_code: Int16
    mechanisms: list[str]


@api(key=17, versions=(0, 1), flexible=None)
class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    mechanism: str
