"""Records in requests and responses. Reading order:

- ``json_types``        the types of records in JSON
- ``json_records``, ``decoded_json``, ``form``   records as JSON, in pieces if they are large
- ``arrow``, ``spreadsheet``   records as Arrow, and for spreadsheets
- ``page``             one page of records, and the offset to continue from
- ``decoded``          what schemas make of the records of a page, within its bounds
- ``single_record``    an answer with one record
- ``large_strings``, ``large_bodies``, ``large_records``   JSON of many or large records, decoded in several turns of the
  event loop
- ``encoding``         keys and values in JSON whose schemas say which bytes they are
- ``upload``, ``ndjson_upload``   records from a request into the log; NDJSON streamed in and out
- ``transaction_records``   records for several topics in one request
- ``tail_streams``, ``event_ids``, ``stream_slots``   live tails, their resumable ids, limits for streams
- ``table_streams``    tables of compacted topics, and the changes after them
"""
