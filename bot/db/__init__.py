"""Tables and queries. All SQL except the change log's."""
