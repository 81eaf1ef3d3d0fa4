"""Users and API keys of a running broker, over its HTTP API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import click
import httpx

from ..config import ClientConfig
from ..errors import SteleClientError
from ..operations.base import HttpAnswer, problem, segment
from ..transport.http_common import login_header, translate
from ..transport.tls import client_context

_TIMEOUT_S = 30.0


class ApiKey(Protocol):
    @property
    def key_id(self) -> str: ...
    @property
    def principal(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def expires_at_ms(self) -> int | None: ...


class UserStore(Protocol):
    """Users and API keys, of a running broker or of a data directory."""

    def add_user(self, name: str, password: str, /) -> None: ...
    def set_password(self, name: str, password: str, /) -> None: ...
    def delete_user(self, name: str, /) -> None: ...
    def users(self) -> dict[str, list[str]]: ...
    def create_key(self, user: str, description: str, lifetime_ms: int | None, /) -> str: ...
    def delete_key(self, key_id: str, /) -> None: ...
    def api_keys(self) -> Sequence[ApiKey]: ...


@dataclass(frozen=True, slots=True)
class _Key:
    key_id: str
    principal: str
    description: str
    expires_at_ms: int | None


class OnlineUsers:
    """A ``UserStore``; its errors end the command with a message."""

    def __init__(self, config: ClientConfig) -> None:
        self._endpoint = endpoint = config.endpoint
        self._http = httpx.Client(
            base_url=endpoint.http_url,
            headers=login_header(endpoint),
            timeout=_TIMEOUT_S,
            trust_env=False,
            verify=client_context(endpoint) or False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def add_user(self, name: str, password: str, /) -> None:
        self._call("POST", "/v1/users", {"name": name, "password": password})

    def set_password(self, name: str, password: str, /) -> None:
        self._call("PUT", f"/v1/users/{segment(name)}/password", {"password": password})

    def delete_user(self, name: str, /) -> None:
        self._call("DELETE", f"/v1/users/{segment(name)}")

    def users(self) -> dict[str, list[str]]:
        listed = self._call("GET", "/v1/users").json()["users"]
        return {one["name"]: one["mechanisms"] for one in listed}

    def create_key(self, user: str, description: str, lifetime_ms: int | None, /) -> str:
        body = {"user": user, "description": description, "expires_in_ms": lifetime_ms}
        return str(self._call("POST", "/v1/keys", body).json()["key"])

    def delete_key(self, key_id: str, /) -> None:
        self._call("DELETE", f"/v1/keys/{segment(key_id)}")

    def api_keys(self) -> Sequence[ApiKey]:
        listed = self._call("GET", "/v1/keys").json()["keys"]
        return [_Key(one["id"], one["principal"], one["description"], one["expires_at"]) for one in listed]

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> HttpAnswer:
        try:
            response = self._http.request(method, path, json=body)
            answer = HttpAnswer(status=response.status_code, headers=response.headers, body=response.content)
            if answer.status >= 400:
                raise problem(answer)
        except httpx.HTTPError as error:
            raise click.ClickException(str(translate(self._endpoint, error, _TIMEOUT_S))) from error
        except SteleClientError as error:
            raise click.ClickException(str(error)) from error
        return answer
