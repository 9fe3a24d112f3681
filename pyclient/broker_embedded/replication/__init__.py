"""The partitions that a node leads (`Partitions`), fetches that wait (`FetchPurgatory`) and fetch sessions."""
