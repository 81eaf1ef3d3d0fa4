"""Operations on users and API keys."""

from __future__ import annotations

from ..bodies import KeyBody, PasswordBody, UserBody
from .components import INTEGER, NULLABLE_INTEGER, STRING, STRINGS, array, model
from .parts import Operation, answers, json_content
from .request_bodies import request_body

_USER = request_body(UserBody, {"name": "alice", "password": "a long generated password"})
_PASSWORD = request_body(PasswordBody, {"password": "a long generated password"})
_KEY = request_body(KeyBody, {"user": "alice", "description": "ingest", "expires_in_ms": 86400000})

_NAME = {"name": "user", "in": "path", "required": True, "schema": STRING, "example": "alice"}

LIST_USERS: Operation = {
    "responses": answers(
        401,
        403,
        ok=json_content(model("UserList", users=array(model("User", name=STRING, mechanisms=STRINGS)))),
    )
}
ADD_USER: Operation = {
    "requestBody": _USER,
    "responses": answers(
        400, 401, 403, 409, 413, 415, ok=json_content(model("AddedUser", name=STRING)), ok_status=201
    ),
}
SET_PASSWORD: Operation = {
    "parameters": [_NAME],
    "requestBody": _PASSWORD,
    "responses": answers(400, 401, 403, 404, 413, 415, ok_status=204),
}
DELETE_USER: Operation = {
    "parameters": [_NAME],
    "responses": answers(401, 403, 404, ok_status=204),
}
LIST_KEYS: Operation = {
    "responses": answers(
        401,
        403,
        ok=json_content(
            model(
                "KeyList",
                keys=array(
                    model(
                        "Key",
                        id=STRING,
                        principal=STRING,
                        description=STRING,
                        created_at=INTEGER,
                        expires_at=NULLABLE_INTEGER,
                    )
                ),
            )
        ),
    )
}
CREATE_KEY: Operation = {
    "requestBody": _KEY,
    "responses": answers(
        400,
        401,
        403,
        409,
        413,
        415,
        ok=json_content(model("CreatedKey", id=STRING, key=STRING)),
        ok_status=201,
    ),
}
DELETE_KEY: Operation = {
    "parameters": [
        {"name": "key_id", "in": "path", "required": True, "schema": STRING, "example": "0123456789ab"}
    ],
    "responses": answers(401, 403, 404, ok_status=204),
}
