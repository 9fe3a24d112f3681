"""Logins to Amazon MSK by IAM: tokens for OAUTHBEARER, which Amazon's own package signs."""

from __future__ import annotations

from typing import Any, Final

from pyclient.errors import ConfigError
from pyclient.net.sasl.oauth import TokenFailure

_SESSION_NAME: Final = "pyclient"


class MskIamTokens:
    """Supplies the tokens with which a client logs in to Amazon MSK as an IAM identity.

    A token is made on this machine from AWS credentials, is valid for 15 minutes, and is replaced ahead of its end.
    Needs `pip install 'pyclient-kafka[msk]'`, which brings Amazon's signer (aws-msk-iam-sasl-signer-python).

    Example:
        Producer(
            "b-1.cluster.kafka.eu-central-1.amazonaws.com:9098",
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=MskIamTokens("eu-central-1"),
        )
    """

    def __init__(
        self, region: str, *, profile: str | None = None, role_arn: str | None = None, session_name: str | None = None
    ) -> None:
        """`region` is that of the cluster, like `eu-central-1`.

        The credentials are those that AWS's tools find (environment, shared files, container, instance), or those of a
        `profile` in the shared files, or those of a role that is assumed by its ARN, under `session_name`. Raise
        `ConfigError` for both profile and role, and without Amazon's signer.
        """
        _signer()
        if not isinstance(region, str) or not region:
            raise ConfigError(f"region is {region!r}: give the AWS region of the cluster, like eu-central-1")
        if profile is not None and role_arn is not None:
            raise ConfigError("profile and role_arn are both given: drop one, or name the profile by AWS_PROFILE")
        if session_name is not None and role_arn is None:
            raise ConfigError("session_name is that of a role that is assumed: give role_arn, too")
        self._region, self._profile, self._role_arn = region, profile, role_arn
        self._session_name = session_name or _SESSION_NAME

    def __repr__(self) -> str:
        identity = f", profile={self._profile!r}" if self._profile else ""
        identity += f", role_arn={self._role_arn!r}" if self._role_arn else ""
        return f"MskIamTokens({self._region!r}{identity})"

    def token(self) -> tuple[str, float]:
        """Return a new token, and when it ends in seconds since 1970. Raise `ConnectionFailed` without credentials."""
        try:
            token, end_ms = self._sign()
        except Exception as error:  # errors of many AWS modules; their texts may quote credentials
            raise TokenFailure(
                f"{self!r}: Amazon's signer made no token ({type(error).__name__}, the cause of this error): check the "
                "AWS credentials, for example with `aws sts get-caller-identity`"
            ) from error
        return token, end_ms / 1000

    def _sign(self) -> tuple[str, int]:
        signer = _signer()
        if self._role_arn is not None:
            signed = signer.generate_auth_token_from_role_arn(self._region, self._role_arn, self._session_name)
        elif self._profile is not None:
            signed = signer.generate_auth_token_from_profile(self._region, self._profile)
        else:
            signed = signer.generate_auth_token(self._region)
        token, end_ms = signed
        return token, end_ms


def _signer() -> Any:
    """Return Amazon's module; raise `ConfigError` if it is not installed."""
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # few clients need it
    except ImportError as error:
        raise ConfigError(
            f"MskIamTokens needs the package aws-msk-iam-sasl-signer-python ({error}): "
            "pip install 'pyclient-kafka[msk]'"
        ) from error
    return MSKAuthTokenProvider
