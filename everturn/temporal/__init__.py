"""Temporal's server as everturn meets it: how it is reached, its namespace, ids, errors and prices."""
