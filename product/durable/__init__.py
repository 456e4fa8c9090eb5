"""The file primitives that every product is built on: the only code that calls fsync, replace, rename, link, unlink or
flock. It imports killpoints and nothing else of ours.

==============  =============================================================================================
module          what it guarantees
==============  =============================================================================================
``canonical``   one form of JSON: RFC 8785 bytes out, strict reading in, one error that says where
``plain``       reading follows no link, waits for no FIFO, and names what is not a plain file (reads only)
``files``       put, move, exchange, remove: whole or not at all, durable, read back; nothing unchecked is deleted
``directories`` one that is filled aside gets its name at once; one that is empty goes
``rename``      renames that never overwrite, and exchanges; refused before use where a file system lacks them
``paths``       roots without links or reparse points; names that mean the same on every system (reads only)
``volume``      two paths provably on one volume (reads only)
``processes``   what the system says about a process (reads only)
``identity``    who holds a lock and whether that process lives, by a complete table (rows H1 to H9)
``owner``       what leftover metadata of the state lock allows, by a complete table (rows S1 to S8)
``kernel_lock`` one writer at a time where no metadata is wanted
``append``      whole records at the end of a journal: a torn tail is cut first, what was written is read back
``lines``       whole lines of a file that grows, in bounded memory, with where each ends (reads only)
``evidence``    which file was read, and up to where, provably the same one later
``cursor``      effect and evidence saved together, the cursor last; what a reopen may do (rows R1 to R5)
``lock``        one writer at a time, released by the kernel with the process
``table``       decision tables proven complete and unambiguous at import (pure)
``answers``     what a command answers when it refuses, and the exit statuses of all products (pure)
``errors``      one code for each refusal; OSErrors of the system pass through unchanged
==============  =============================================================================================

Not guaranteed:

- A kill proves no fsync. A killed process leaves everything it wrote in the kernel; that a sync is there and in the
  right place is shown by the order of calls in ``tests/durable``, never by kill cells.
- A disk or file system that lies about fsync, and one that two machines share without a common kernel lock.
- A third party that writes in the instant between a check and the call it guards, except where ``put_exchanged`` says
  otherwise; and one that keeps a file open and writes into it after it was moved.
- macOS and Windows: written from their documentation, never run there. Directories cannot be synced on Windows.
- Threads: one process acts through one thread at a time.
"""
