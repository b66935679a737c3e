"""Which runs this installation has made: those whose configuration carries a signature with the key of this user.

Only what may execute code is signed: the module of the environment, and the address of a Ray cluster, which sends
pickles. Copies of a run keep their signature, wherever they lie.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metaroll.envs.base.names import module_of_env, simulator_and_posterior
from metaroll.own_code import module_files, module_of
from metaroll.training.store.run_values import SIGNATURE, address_of, network_of

__all__ = ["is_own", "signed"]

_KEY_BYTES = 32


def signed(config: Mapping[str, Any]) -> dict[str, str]:
    """The entry to add to the configuration of a run that is made here; nothing where it names nothing to execute."""
    names = (str(config.get("algo")), network_of(config) or "")
    needed = (module_of_env(config["env"]), *map(module_of, names), address_of(config))
    key = _key(make=True) if any(needed) else None
    return {} if key is None else {SIGNATURE: _signature(config, key)}


def is_own(config: Mapping[str, Any]) -> bool:
    """Whether this installation has made a run with this configuration, and the module still is in the same file."""
    key, known = _key(), config.get(SIGNATURE)
    return key is not None and isinstance(known, str) and hmac.compare_digest(known, _signature(config, key))


def _signature(config: Mapping[str, Any], key: bytes) -> str:
    env = config["env"]
    files = [str(path.resolve()) for path in module_files(module_of_env(env) or "")]
    # The simulator alone: a posterior is data, wherever it lies.
    signs = ["a run", simulator_and_posterior(env)[0], files, address_of(config)]
    if (module := module_of(str(config.get("algo")))) is not None:
        signs += [config["algo"], [str(path.resolve()) for path in module_files(module)]]
    if (module := module_of(network := network_of(config) or "")) is not None:
        signs += ["policy", network, [str(path.resolve()) for path in module_files(module)]]
    text = json.dumps(signs)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()[:32]


def _key(make: bool = False) -> bytes | None:
    """The secret of this user, perhaps made now; ``None`` if there is none, or it cannot be kept."""
    settings = os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
    path = Path(settings) / "metaroll" / "key"
    with contextlib.suppress(OSError, RuntimeError):
        if make and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(f".key.{os.getpid()}-{secrets.token_hex(4)}.tmp")
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(descriptor, secrets.token_bytes(_KEY_BYTES))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            try:
                os.link(new, path)  # of two processes that make one, the first wins
            finally:
                os.unlink(new)
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            status, key = os.fstat(descriptor), os.read(descriptor, _KEY_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(key) == _KEY_BYTES and status.st_uid == os.getuid() and not status.st_mode & 0o077:
            return key
    return None
