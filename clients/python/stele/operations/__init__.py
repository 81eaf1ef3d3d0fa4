"""What can be asked of a broker: each operation knows its binary frame and its HTTP request.

No I/O here. A transport carries an operation either way; a new operation is one
class in one of these files.
"""
