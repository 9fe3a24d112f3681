"""Fetch sessions: requests have exactly the changes that the broker does not know yet."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from pyclient.consumer.fetch_session_handler import FetchPosition, FetchSessionHandler, SessionRequest
from pyclient.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from pyclient.types import TopicPartition
from tests.consumer.consumer_samples import T0, T1

ID_1, ID_2 = uuid.UUID(int=1), uuid.UUID(int=2)


def at(offset: int, topic_id: uuid.UUID = ID_1) -> FetchPosition:
    return FetchPosition(topic_id, offset, 0, 1024)


def parts(request: SessionRequest) -> tuple[int, int, list[TopicPartition], list[TopicPartition]]:
    return request.session_id, request.epoch, list(request.send), list(request.forget)


def test_first_request_is_full_and_opens_a_session() -> None:
    session = FetchSessionHandler()
    request = session.request({T1: at(0), T0: at(0)}, by_id=False)
    assert parts(request) == (0, 0, [T1, T0], [])
    assert request.full


def test_later_requests_send_changes_and_forget_removed_partitions() -> None:
    session = FetchSessionHandler()
    session.request({T0: at(0), T1: at(0)}, by_id=False)
    session.answered(77)
    assert parts(session.request({T0: at(5), T1: at(0)}, by_id=False)) == (77, 1, [T0], [])
    session.answered(77)
    assert parts(session.request({T1: at(0)}, by_id=False)) == (77, 2, [], [T0])
    assert session.knows(T1)
    assert not session.knows(T0)


def test_broker_without_sessions_gets_full_requests() -> None:
    session = FetchSessionHandler()
    for offset in range(3):
        assert parts(session.request({T0: at(offset)}, by_id=False)) == (0, 0, [T0], [])
        session.answered(0)


def test_unknown_session_is_replaced() -> None:
    for error in (FetchSessionIdNotFound, FetchSessionTopicIdError):
        session = FetchSessionHandler()
        session.request({T0: at(0)}, by_id=False)
        session.answered(77)
        session.request({T0: at(1)}, by_id=False)
        session.refused(error.code)
        assert parts(session.request({T0: at(1)}, by_id=False)) == (0, 0, [T0], [])


def test_wrong_epoch_or_lost_response_closes_the_old_session_next() -> None:
    for lose in (lambda s: s.refused(InvalidFetchSessionEpoch.code), lambda s: s.failed()):
        session = FetchSessionHandler()
        session.request({T0: at(0)}, by_id=False)
        session.answered(77)
        session.request({T0: at(1)}, by_id=False)
        lose(session)
        assert parts(session.request({T0: at(1)}, by_id=False)) == (77, 0, [T0], [])


def test_switch_between_names_and_ids_starts_a_new_session() -> None:
    session = FetchSessionHandler()
    session.request({T0: at(0)}, by_id=False)
    session.answered(77)
    assert session.request({T0: at(0)}, by_id=True).full


def test_recreated_topic_is_forgotten_by_old_id_and_sent_by_new_one() -> None:
    session = FetchSessionHandler()
    session.request({T0: at(9, ID_1)}, by_id=True)
    session.answered(77)
    request = session.request({T0: at(0, ID_2)}, by_id=True)
    assert (dict(request.send), dict(request.forget)) == ({T0: at(0, ID_2)}, {T0: ID_1})


def test_epoch_wraps_to_one() -> None:
    session = FetchSessionHandler()
    session.request({}, by_id=False)
    session.answered(77)
    session.epoch = 2**31 - 1
    session.request({}, by_id=False)
    session.answered(77)
    assert session.epoch == 1


partitions = st.integers(0, 4).map(lambda number: TopicPartition("t", number))
wanted = st.dictionaries(partitions, st.builds(at, st.integers(0, 3)))


@given(st.lists(st.tuples(wanted, st.sampled_from(["ok", "ok", "ok", "lost", "declined", "unknown"]))))
def test_session_state_at_the_broker_equals_the_wanted_partitions(
    script: list[tuple[dict[TopicPartition, FetchPosition], str]],
) -> None:
    session, sessions, next_id = FetchSessionHandler(), dict[int, dict[TopicPartition, FetchPosition]](), 1
    epochs: dict[int, int] = {}
    for want, outcome in script:
        request = session.request(want, by_id=False)
        if request.full:
            sessions.pop(request.session_id, None)
            held, session_id = dict(request.send), 0 if outcome == "declined" else next_id
            next_id += 1
        else:
            session_id = request.session_id
            assert request.epoch == epochs[session_id] + 1
            held = {p: position for p, position in sessions[session_id].items() if p not in request.forget}
            held.update(request.send)
        assert held == want
        if session_id:
            sessions[session_id], epochs[session_id] = held, request.epoch
        if outcome == "lost":
            session.failed()
        elif outcome == "unknown":
            session.refused(FetchSessionIdNotFound.code)
        else:
            session.answered(session_id)
