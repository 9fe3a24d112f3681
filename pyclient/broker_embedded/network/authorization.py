"""Applies an authorizer to requests: what is not allowed is answered with an error, and the rest is served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyclient import errors
from pyclient.acls import AclOperation, ResourceType
from pyclient.broker_embedded.authorizer.rights import RIGHTS, ItemRight, RequestRight, error_of
from pyclient.broker_embedded.failures import message_of
from pyclient.broker_embedded.faults.answers import Failing
from pyclient.broker_embedded.faults.error_answers import failed_answer
from pyclient.broker_embedded.faults.items import items_of, top_roles
from pyclient.broker_embedded.faults.request import FaultyRequest
from pyclient.broker_embedded.faults.shapes import TOP, place_of, shape_of
from pyclient.broker_embedded.request_context import CloseConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyclient.broker_embedded.authorizer.rights import Right
    from pyclient.broker_embedded.faults.items import Item
    from pyclient.broker_embedded.request_context import RequestContext, Route
    from pyclient.protocol.fields import Request

_NO_RIGHTS: Final = (RequestRight(lambda _request, _version: (), errors.ClusterAuthorizationFailed),)


class _Denied:
    """Selects the items of a request that lack a right, and notes their error."""

    def __init__(self, right: ItemRight, request: Any, context: RequestContext) -> None:
        self._right = right
        self._request = request
        self._context = context
        self.error: type[errors.BrokerError] = errors.TopicAuthorizationFailed

    def allows(self, roles: Mapping[str, Any]) -> bool:
        """Return True for an item that is denied, or whose name is in the items below it."""
        if self._right.role not in roles:
            return True
        wanted = self._right.wanted(roles, self._request)
        if wanted is None or self._context.may(*wanted):
            return False
        self.error = self._right.error(roles)
        return True


class Authorization:
    """Serves requests with the rights of their clients."""

    def __repr__(self) -> str:
        return "<Authorization>"

    def serve(
        self, route: Route, request: Request[Any], context: RequestContext, serve: Callable[[Route, Any], Any]
    ) -> Any:
        """Return the answer: that of `serve(route, request)`, or one with errors for what is not allowed."""
        return self._serve(RIGHTS.get(route.name, _NO_RIGHTS), route, request, context, serve)

    def _serve(
        self,
        rights: tuple[Right, ...],
        route: Route,
        request: Request[Any],
        context: RequestContext,
        serve: Callable[[Route, Any], Any],
    ) -> Any:
        for number, right in enumerate(rights):
            if isinstance(right, RequestRight):
                wanted = right.any_of(request, context.version)
                if wanted is not None and not self._has_any(right, wanted, context):
                    return self._refused(right, wanted, route, request, context)
                continue
            denied = _Denied(right, request, context)
            if self._has_denied(denied, right, route, request, context):
                rest = rights[number + 1 :]
                return self._without_denied(denied, right, rest, route, request, context, serve)
        return serve(route, request)

    @staticmethod
    def _has_any(
        right: RequestRight, wanted: Iterable[tuple[AclOperation, ResourceType, str]], context: RequestContext
    ) -> bool:
        asked = tuple(wanted)
        if any(context.may(*each) for each in asked):
            return True
        is_cluster = bool(asked) and asked[0][1] is ResourceType.CLUSTER
        return right.or_any_topic and is_cluster and context.may_any(AclOperation.WRITE, ResourceType.TOPIC)

    @staticmethod
    def _refused(
        right: RequestRight, wanted: tuple[Any, ...], route: Route, request: Request[Any], context: RequestContext
    ) -> Any:
        error = error_of(right, wanted) if wanted else errors.ClusterAuthorizationFailed("no right is enough")
        answer = failed_answer(route.name, request, context.version, context.services.image.topic_name, error)
        if answer is None:
            raise CloseConnection(f"{route.name}: {error}")
        return answer

    @staticmethod
    def _has_denied(
        denied: _Denied, right: ItemRight, route: Route, request: Request[Any], context: RequestContext
    ) -> bool:
        shape = shape_of(route.name, context.version)
        top = top_roles(shape, request)
        if right.role in top:
            return denied.allows(top)
        names = context.services.image.topic_name
        return _any_denied(items_of(shape, request, names) or (), right.role, denied)

    def _without_denied(
        self,
        denied: _Denied,
        right: ItemRight,
        rest: tuple[Right, ...],
        route: Route,
        request: Request[Any],
        context: RequestContext,
        serve: Callable[[Route, Any], Any],
    ) -> Any:
        if getattr(request, "acks", None) == 0:
            raise CloseConnection(f"{route.name}: a topic is not allowed, and the request wants no answer")
        name, version = route.name, context.version
        error = denied.error("not allowed")
        shape = shape_of(name, version)
        place = place_of(name, version, error.code, by_topic=not right.outer, by_partition=False, whole=right.outer)
        if place is None:
            raise CloseConnection(f"{name}: {message_of(error)}")
        names = context.services.image.topic_name
        failing = Failing(shape, version, place, error.code, str(message_of(error)), denied, names)  # type: ignore[arg-type]  # it selects items as a Selection does
        if place == TOP:
            return failing.whole(request)

        def others(left: Any, _context: RequestContext) -> Any:
            return self._serve(rest, route, left, context, serve)

        return FaultyRequest(route.with_handler(others), request, context, 0, outcome=None, timing=None).fail_items(
            failing,
            shape,
            place,
            denied,  # type: ignore[arg-type]  # it selects items as a Selection does
            None,
        )


def _any_denied(items: Iterable[Item], role: str, denied: _Denied) -> bool:
    return any(
        denied.allows(item.roles) if role in item.roles else _any_denied(item.children or (), role, denied)
        for item in items
    )
