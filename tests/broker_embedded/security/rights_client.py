"""Clients of the authorisation cases: the admin, which sets ACLs, and the user alice, whose requests are checked."""

from __future__ import annotations

import contextlib
from typing import Final

from pyclient.acls import AclBinding
from pyclient.broker_embedded.faults.shapes import error_codes
from pyclient.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from pyclient.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pyclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pyclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from pyclient.protocol.versions import API_KEYS, request_class
from tests.broker_embedded.admin_replay import message_of
from tests.broker_embedded.conftest import RawClient
from tests.broker_embedded.security.right_cases import Case

USERS: Final = {"alice": "hers", "admin": "his"}


def logged_in(address: str, user: str) -> RawClient:
    client = RawClient(address)
    client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = client.call(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{USERS[user]}".encode()), 2)
    assert answer.error_code == 0
    return client


def make_topic(admin: RawClient) -> None:
    """Create the topic of the cases if it is not there."""
    admin.call(MetadataRequest(topics=[MetadataRequestTopic(name="rights")], allow_auto_topic_creation=True), 9)


def replace_acls(admin: RawClient, acls: list[AclBinding]) -> None:
    """Delete every ACL, and create these."""
    every = DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    admin.call(DeleteAclsRequest(filters=[every]), 3)
    creations = [
        AclCreation(
            resource_type=int(acl.resource_type),
            resource_name=acl.name,
            resource_pattern_type=int(acl.pattern),
            principal=acl.principal,
            host=acl.host,
            operation=int(acl.operation),
            permission_type=int(acl.permission),
        )
        for acl in acls
    ]
    answer = admin.call(CreateAclsRequest(creations=creations), 3)
    assert not any(each.error_code for each in answer.results)


def errors_of(address: str, case: Case, user: str = "alice") -> list[int]:
    """Return the error codes in the answer to a user."""
    with contextlib.closing(logged_in(address, user)) as client:
        return errors_in_answer(client, case)


def errors_in_answer(client: RawClient, case: Case) -> list[int]:
    request = message_of(request_class(API_KEYS[case.api]), case.fields)
    return error_codes(case.api, case.version, client.call(request, case.version))
