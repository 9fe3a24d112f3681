"""Administration of a cluster: topics, options, groups, ACLs, tokens, transactions, the quorum.

`Admin`, which is generated from `AsyncAdmin`, calls the shared `AdminClient` in a thread or on the caller's loop
(`runners.py`). `AdminClient` has the calls about topics and options; those of one subject each are in `GroupCalls`,
`AclCalls`, `DelegationTokenCalls`, `TransactionCalls` and `QuorumCalls`. `topics.py` and `groups.py` have the values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.lazy_names import importer

if TYPE_CHECKING:
    from pyclient.admin.admin import Admin
    from pyclient.admin.async_admin import AsyncAdmin
    from pyclient.admin.config import AdminConfig, AdminOptions
    from pyclient.admin.delegation_token_calls import DelegationToken
    from pyclient.admin.groups import GroupDescription, GroupListing, GroupMember
    from pyclient.admin.quorum_calls import QuorumDescription, QuorumReplica
    from pyclient.admin.topics import NewTopic, TopicDescription
    from pyclient.admin.transaction_calls import ProducerDescription, TransactionDescription, TransactionListing

__all__ = [
    "Admin",
    "AdminConfig",
    "AdminOptions",
    "AsyncAdmin",
    "DelegationToken",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "NewTopic",
    "ProducerDescription",
    "QuorumDescription",
    "QuorumReplica",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
]

_MODULES = {
    "Admin": "pyclient.admin.admin",
    "AdminConfig": "pyclient.admin.config",
    "AdminOptions": "pyclient.admin.config",
    "AsyncAdmin": "pyclient.admin.async_admin",
    "DelegationToken": "pyclient.admin.delegation_token_calls",
    "GroupDescription": "pyclient.admin.groups",
    "GroupListing": "pyclient.admin.groups",
    "GroupMember": "pyclient.admin.groups",
    "NewTopic": "pyclient.admin.topics",
    "ProducerDescription": "pyclient.admin.transaction_calls",
    "QuorumDescription": "pyclient.admin.quorum_calls",
    "QuorumReplica": "pyclient.admin.quorum_calls",
    "TopicDescription": "pyclient.admin.topics",
    "TransactionDescription": "pyclient.admin.transaction_calls",
    "TransactionListing": "pyclient.admin.transaction_calls",
}

if not TYPE_CHECKING:  # to a type checker, a module with this function has every name
    __getattr__ = importer(__name__, _MODULES)
