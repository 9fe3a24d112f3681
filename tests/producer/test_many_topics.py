"""The first records to many topics."""

from __future__ import annotations

from pyclient import Admin, NewTopic

COUNT = 200


def test_first_records_to_many_topics_need_few_metadata_requests(make, cluster, topic):
    names = [f"{topic}-{number}" for number in range(COUNT)]
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, 1, 1) for name in names])
    client = make()
    with cluster.requests.start() as requests:
        futures = [client.send(name, name.encode()) for name in names]
        assert [client.result(future).offset for future in futures] == [0] * COUNT
        assert len(requests.query("Metadata")) < COUNT / 4
    assert set(names) <= client.producer_client.cluster.topics


def test_topics_missing_in_the_list_of_all_topics_are_created(make, topic):
    client = make()
    names = [f"{topic}-{number}" for number in range(COUNT)]
    futures = [client.send(name, name.encode()) for name in names]
    assert [client.result(future).offset for future in futures] == [0] * COUNT
