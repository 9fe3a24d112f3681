"""UpdateFeatures v0-2: change the levels of the named features, all or none.

A successful response of v0-1 has each feature. metadata.version is lowered only where Kafka allows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.controller.features import Upgrade
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of, message_of
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext


@handles(UpdateFeaturesRequest, versions=(0, 2), durable=Durable.METADATA, forwarded=True)
def handle(request: UpdateFeaturesRequest, context: RequestContext) -> IncrementalTask[UpdateFeaturesResponse]:
    """Answer for all features at once."""
    requested = [each.feature for each in request.feature_updates]
    updates: dict[str, tuple[int, int]] = {}
    for each in request.feature_updates:
        updates[each.feature] = each.max_version_level, _kind(each, context.version)
        yield None
    try:
        context.services.controller.update_features(updates, validate_only=request.validate_only)
    except Exception as error:  # every failure is answered with its error code
        code = code_of(error, "UpdateFeatures")
        return UpdateFeaturesResponse(throttle_time_ms=0, error_code=code, error_message=message_of(error))
    results = [UpdatableFeatureResult(feature=name, error_code=0, error_message="NONE") for name in requested]
    return UpdateFeaturesResponse(
        throttle_time_ms=0, error_code=0, error_message=None, results=results if context.version <= 1 else []
    )


def _kind(update: FeatureUpdateKey, version: int) -> int:
    if version == 0:
        return Upgrade.SAFE_DOWNGRADE if update.allow_downgrade else Upgrade.UPGRADE
    return update.upgrade_type
