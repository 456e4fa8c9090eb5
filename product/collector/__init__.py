"""Formal append under a recoverable lock: each post of a creator's page is archived at most once, whatever dies.

    layout, claims, records, states, manifests, slots, evidence, components, coverage, feed, keys,
    places, chains, checking, explaining, completed, bundle                            decide: pure
    observe, inventory                                                                 only read
    perform, moving, bundling                                                          only write
    drive                    observe -> decide -> perform until nothing is left to do
    commands, upkeep, cli    what a user calls

The protocol is in SPEC.md beside this file; a test holds its tables against ``states.py`` row by row.
Not guaranteed: two machines that share the archive but not the state directory; a file system that lies about fsync;
a third party that edits a file between the exchange and the check where the system has no exchange.
"""
