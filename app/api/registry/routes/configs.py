"""Serve configurations and modes: those of all subjects, of a context, of a subject."""

from __future__ import annotations

from typing import cast

from starlette.requests import Request

from ..answers import ChangedConfig, ConfigJson, ModeJson, changed_config
from ..bodies import CONFIG, MODE
from ..rights import require_alias
from ..routing import DEFAULT_TO_GLOBAL, SUBJECT, RegistryFlag, log, registry_of, routes

route = routes("configurations")

_FORCE = RegistryFlag("force", "allow IMPORT although there are subjects")
_RECURSIVE = RegistryFlag("recursive", "also remove the modes of what is below")


def _subject(request: Request) -> str | None:
    """Return the subject that the path names, None for all."""
    return SUBJECT.read(request) if "subject" in request.path_params else None


async def _config(request: Request) -> ConfigJson:
    config = await registry_of(request).config(
        _subject(request), default_to_global=DEFAULT_TO_GLOBAL.read(request)
    )
    return cast("ConfigJson", config)


async def _set_config(request: Request) -> ChangedConfig:
    subject, body = _subject(request), await CONFIG.read(request)
    if isinstance(body.alias, str):
        require_alias(request, subject or "", body.alias)
    changes = await registry_of(request).set_config(subject, body.changes())
    log(request, "set-config", subject)
    return changed_config(changes)


async def _delete_config(request: Request) -> ConfigJson:
    subject = _subject(request)
    removed = await registry_of(request).delete_config(subject)
    log(request, "delete-config", subject)
    return cast("ConfigJson", removed)


async def _mode(request: Request) -> ModeJson:
    return {
        "mode": await registry_of(request).mode(
            _subject(request), default_to_global=DEFAULT_TO_GLOBAL.read(request)
        )
    }


async def _set_mode(request: Request) -> ModeJson:
    subject, body = _subject(request), await MODE.read(request)
    mode = await registry_of(request).set_mode(subject, body.mode, force=_FORCE.read(request))
    log(request, f"set-mode-{mode}", subject)
    return {"mode": mode}


async def _delete_mode(request: Request) -> ModeJson:
    subject = _subject(request)
    removed = await registry_of(request).delete_mode(subject, recursive=_RECURSIVE.read(request))
    log(request, "delete-mode", subject)
    return {"mode": removed}


@route("GET /config", "Get the global configuration", DEFAULT_TO_GLOBAL)
async def get_global_config(request: Request) -> ConfigJson:
    """Return the configuration of subjects that have none of their own."""
    return await _config(request)


@route("PUT /config", "Change the global configuration", body=CONFIG)
async def set_global_config(request: Request) -> ChangedConfig:
    """Change the members that are named, such as the compatibility level."""
    return await _set_config(request)


@route("DELETE /config", "Remove the global configuration")
async def delete_global_config(request: Request) -> ConfigJson:
    """Return to the defaults; the answer is what was removed."""
    return await _delete_config(request)


@route("GET /config/{subject}", "Get the configuration of a subject", DEFAULT_TO_GLOBAL)
async def get_config(request: Request) -> ConfigJson:
    """Return the configuration of a subject, or with `:.CONTEXT:` of a context."""
    return await _config(request)


@route("PUT /config/{subject}", "Change the configuration of a subject", body=CONFIG)
async def set_config(request: Request) -> ChangedConfig:
    """Change the members that are named; the subject need not exist."""
    return await _set_config(request)


@route("DELETE /config/{subject}", "Remove the configuration of a subject")
async def delete_config(request: Request) -> ConfigJson:
    """Let the global configuration apply again; the answer is what was removed."""
    return await _delete_config(request)


@route("GET /mode", "Get the global mode", DEFAULT_TO_GLOBAL)
async def get_global_mode(request: Request) -> ModeJson:
    """Return the mode of subjects that have none of their own."""
    return await _mode(request)


@route("PUT /mode", "Set the global mode", _FORCE, body=MODE)
async def set_global_mode(request: Request) -> ModeJson:
    """Set what may be changed: everything (READWRITE), nothing (READONLY), or only with ids of another registry (IMPORT)."""
    return await _set_mode(request)


@route("DELETE /mode", "Remove the global mode", _RECURSIVE)
async def delete_global_mode(request: Request) -> ModeJson:
    """Return to READWRITE; the answer is what was removed."""
    return await _delete_mode(request)


@route("GET /mode/{subject}", "Get the mode of a subject", DEFAULT_TO_GLOBAL)
async def get_mode(request: Request) -> ModeJson:
    """Return the mode of a subject, or with `:.CONTEXT:` of a context."""
    return await _mode(request)


@route("PUT /mode/{subject}", "Set the mode of a subject", _FORCE, body=MODE)
async def set_mode(request: Request) -> ModeJson:
    """Set the mode of a subject, which need not exist."""
    return await _set_mode(request)


@route("DELETE /mode/{subject}", "Remove the mode of a subject", _RECURSIVE)
async def delete_mode(request: Request) -> ModeJson:
    """Let the global mode apply again; the answer is what was removed."""
    return await _delete_mode(request)
