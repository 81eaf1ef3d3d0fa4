"""Records in requests and responses. Reading order:

- ``record_types``      the types of records in JSON
- ``record_json``, ``record_form``   records as JSON, in pieces if they are large
- ``record_arrow``, ``record_csv``   records as Arrow, and for spreadsheets
- ``record_page``      one page of records, and the offset to continue from
- ``record_responses``   an answer with one record
- ``record_decoding``  JSON of large records, decoded in several turns of the event loop
- ``upload``, ``ndjson_upload``   records from a request into the log; NDJSON streamed in and out
- ``transaction_records``   records for several topics in one request
- ``tail_streams``, ``event_ids``, ``stream_slots``   live tails, their resumable ids, limits for streams
- ``table_streams``    tables of compacted topics, and the changes after them
"""
