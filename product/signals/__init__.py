"""Signal counter: how often each key was seen in an append-only file. No line is counted twice or missed, whatever dies.

    layout, tally, records, states     decide: pure (what a reopen may do is RESUME of product.durable.cursor)
    observe                            only reads
    perform                            only writes
    drive            observe -> decide -> perform, once a command
    commands, cli    what a user calls
    watch            when to scan again

The protocol is in SPEC.md beside this file; a test holds its tables against the code row by row.
Not guaranteed: a line that was changed in the middle of the file after it was counted is not noticed by scan (``check``
finds it); two machines that share the state directory without a common kernel lock; a file system that lies about fsync.
"""
