"""Nodes and standbys come and go as people do it: real processes, real commands, and kill -9 in the middle.

Somebody publishes all the while; a subscription and a durable one that is killed and comes back hold everything. At
the end the auditor judges their logs.
"""
