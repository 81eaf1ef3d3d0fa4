"""A replica of a data directory in a bucket: backup to the second, restore to a time. Reading order:

- ``cut``              what of a data directory is in a bucket as of one moment, and its format
- ``state``            what a chain of cuts adds up to
- ``chain``            the cuts in a bucket, one after the other, whoever writes them
- ``options``, ``status``   what users choose, and see
- ``bucket_url``, ``bucket``   the bucket, and requests that are repeated
- ``marks``            where logs stood at a moment
- ``segment_bytes``, ``segment_uploads``   bytes of segments in objects
- ``store_images``, ``store_uploads``      the files of stores in objects
- ``remote_reads``     reads of segments that are in the bucket alone
- ``retention``        deletes what no restore needs
- ``generations``      how a start takes its place in the chain
- ``comparison``       what of a directory the bucket has
- ``awaited_cuts``     who waits for a cut
- ``replicator``       writes cuts
- ``moments``, ``restore_plan``   the moments that can be restored; what a restore reads, and where it writes that
- ``downloads``, ``staging``      reads with checks; the directory that is not complete yet
- ``restore``, ``verify``         restores a directory; looks at a bucket without
"""
