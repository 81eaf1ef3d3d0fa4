"""Users and API keys, over HTTP only."""

from __future__ import annotations

from dataclasses import dataclass, field

from .base import HttpAnswer, HttpRequest, NoResult, Operation, json_request, segment


class AddUser(NoResult):
    name: str
    password: str = field(repr=False)

    def to_http(self) -> HttpRequest:
        return json_request("POST", "/v1/users", self.fields())


class SetPassword(NoResult):
    is_repeatable = True
    name: str
    password: str = field(repr=False)

    def to_http(self) -> HttpRequest:
        path = f"/v1/users/{segment(self.name)}/password"
        return json_request("PUT", path, {"password": self.password})


class DeleteUser(NoResult):
    name: str

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="DELETE", path=f"/v1/users/{segment(self.name)}")


class ListUsers(Operation[dict[str, list[str]]]):
    """List the mechanisms of each user."""

    is_repeatable = True

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path="/v1/users")

    def from_http(self, answer: HttpAnswer) -> dict[str, list[str]]:
        return {user["name"]: user["mechanisms"] for user in answer.json()["users"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """An API key without its secret; ``expires_at_ms`` None never expires."""

    key_id: str
    principal: str
    description: str
    expires_at_ms: int | None


class CreateKey(Operation[str]):
    """Create an API key; the result is shown this once."""

    user: str
    description: str
    lifetime_ms: int | None

    def to_http(self) -> HttpRequest:
        body = {"user": self.user, "description": self.description, "expires_in_ms": self.lifetime_ms}
        return json_request("POST", "/v1/keys", body)

    def from_http(self, answer: HttpAnswer) -> str:
        return str(answer.json()["key"])


class DeleteKey(NoResult):
    key_id: str

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="DELETE", path=f"/v1/keys/{segment(self.key_id)}")


class ListKeys(Operation[list[ApiKey]]):
    is_repeatable = True

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path="/v1/keys")

    def from_http(self, answer: HttpAnswer) -> list[ApiKey]:
        return [
            ApiKey(
                key_id=key["id"],
                principal=key["principal"],
                description=key["description"],
                expires_at_ms=key["expires_at"],
            )
            for key in answer.json()["keys"]
        ]
