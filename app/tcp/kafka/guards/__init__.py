"""What a client of the Kafka listener must be allowed to do, per API.

Reading order:

- ``refusals``       responses that refuse, and changes of responses that come later
- ``authorized``     the operations that responses list (KIP-430), without access rules
- ``rights``         guards that many APIs share: one right, or one per topic
- ``topics``         which topics exist, records, and their configurations
- ``groups``         groups and their offsets
- ``transactions``   transactional ids

A guard stands between the connection and the handler. It takes out of the request what
is refused, lets the handler answer the rest, and adds the refusals to the response; it
leaves out of lists what the client may not see. Whether something exists is never looked
at before the right. Without access rules, no guard is called.
"""
