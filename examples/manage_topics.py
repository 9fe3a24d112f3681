"""Create, look at, grow and delete topics."""

from pyclient import Admin, NewTopic
from pyclient.broker_embedded import EmbeddedCluster

with EmbeddedCluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
    admin.create_topics([NewTopic("orders", 3, 1, configs={"retention.ms": "3600000"})])
    admin.create_partitions({"orders": 6})
    print(admin.list_topics())
    for name, topic in admin.describe_topics(["orders"]).items():
        print(name, topic.topic_id, len(topic.partitions), "partitions")
    admin.delete_topics(["orders"])
