"""Is a site worth fetching? Every signal acts in its own dimension, and reaches a wider one only on accumulated evidence.

    states, entries, keys, knowledge, judging, records, explaining   decide: pure
    observe                                                          only reads
    perform                                                          only writes
    probing                                                          asks a web server, once a probe
    drive            observe -> decide -> perform, once a command
    commands, cli    what a user calls

The protocol is in SPEC.md beside this file; a test holds its tables against the code row by row.
Not guaranteed: that a page which a probe is redirected to is one that you want to be asked (a redirect may lead into
your own network); two machines that share the state without a common kernel lock; a file system that lies about fsync.
"""
