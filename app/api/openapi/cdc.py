"""Operations on change data capture."""

from __future__ import annotations

from .parts import Operation, answers, json_content

CDC: Operation = {
    "responses": answers(
        ok=json_content(
            {
                "type": "object",
                "required": ["connectors"],
                "properties": {
                    "connectors": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["slot", "state", "restarts"],
                            "properties": {
                                "slot": {"type": "string"},
                                "database": {"type": "string"},
                                "state": {
                                    "enum": [
                                        "standby",
                                        "starting",
                                        "connecting",
                                        "copying",
                                        "streaming",
                                        "waiting",
                                        "stopped",
                                        "failed",
                                    ]
                                },
                                "confirmed_lsn": {"type": "string"},
                                "lag_bytes": {"type": ["integer", "null"]},
                                "wal_status": {"type": ["string", "null"]},
                                "events": {"type": "integer"},
                                "repeated": {"type": "integer"},
                                "transactions": {"type": "integer"},
                                "notifications": {"type": "integer"},
                                "commit_ms": {"type": "integer"},
                                "failures": {"type": "integer"},
                                "restarts": {"type": "integer"},
                                "last_error": {"type": ["string", "null"]},
                                "tables": {
                                    "type": "object",
                                    "additionalProperties": {
                                        "type": "object",
                                        "properties": {
                                            "copied": {"type": "integer"},
                                            "expected": {"type": "integer"},
                                            "changes": {"type": "integer"},
                                        },
                                    },
                                },
                            },
                        },
                    }
                },
            }
        )
    )
}
