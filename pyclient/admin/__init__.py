"""Admin clients: create, describe, grow and delete topics; describe and delete groups, and set their offsets."""

from pyclient.admin.admin import Admin
from pyclient.admin.async_admin import AsyncAdmin
from pyclient.admin.config import AdminConfig, AdminOptions
from pyclient.admin.groups import GroupDescription, GroupListing, GroupMember
from pyclient.admin.topics import NewTopic, TopicDescription
from pyclient.admin.transaction_calls import ProducerDescription, TransactionDescription, TransactionListing

__all__ = [
    "Admin",
    "AdminConfig",
    "AdminOptions",
    "AsyncAdmin",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "NewTopic",
    "ProducerDescription",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
]
