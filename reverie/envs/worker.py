"""A worker process that hosts some of a vector's envs: ``python -m reverie.envs.worker <socket> <memory>``.

It is started as a fresh interpreter rather than forked or spawned, so scripts need no ``__main__`` guard and
no copy of the parent's memory lives on. Rows and actions travel through shared memory; the socket carries a
byte that says what to do, and JSON or safetensors where a command has content. Nothing is ever pickled. A
worker ends when its socket closes: on the vector's ``close`` and when the parent dies, however it dies.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import safetensors.numpy
from gymnasium.envs.registration import EnvSpec, WrapperSpec

from reverie.core import registry
from reverie.core.errors import ConfigError, ReverieError
from reverie.core.signals import STOP_SIGNALS
from reverie.core.specs import Specs, read_specs
from reverie.core.types import Row, State
from reverie.envs.config import EnvConfig
from reverie.envs.episode import as_action_list
from reverie.envs.errors import EnvError
from reverie.envs.make import find_spec, is_dotted, make_env, max_episode_steps_of
from reverie.envs.vector import Layout, make_episode, row_layout

START, BEGIN, STEP, GET_STATE, LOAD_STATE, LOSE = b"I", b"B", b"S", b"G", b"L", b"X"
DONE, FAILED = b"K", b"E"
_HEADER = struct.Struct("<cI")
_ALIGNMENT = 64


def fresh_interpreter(module: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Command and environment that run a module in a new process, which finds exactly the modules of this one."""
    search_path = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return [sys.executable, "-P", "-m", module, *arguments], {**os.environ, "PYTHONPATH": search_path}


def send(channel: socket.socket, kind: bytes, payload: bytes = b"") -> None:
    channel.sendall(_HEADER.pack(kind, len(payload)) + payload)


def receive(channel: socket.socket) -> tuple[bytes, bytes]:
    """The next message; EOFError when the other side is gone."""
    kind, length = _HEADER.unpack(_receive_exactly(channel, _HEADER.size))
    return kind, _receive_exactly(channel, length)


def _receive_exactly(channel: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = channel.recv(length - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def shared_layout(specs: Specs, log_keys: tuple[str, ...]) -> Layout:
    """What lies in the shared memory: the arriving rows and, first, the actions."""
    return {"action": (specs.action.shape, specs.action.dtype), **row_layout(specs, log_keys)}


def shared_size(layout: Layout, num_envs: int) -> int:
    return sum(_padded_size(shape, dtype, num_envs) for shape, dtype in layout.values())


def map_shared(memory: mmap.mmap, layout: Layout, num_envs: int) -> Row:
    """The arrays of a layout, one after the other in the shared memory."""
    arrays, offset = {}, 0
    for key, (shape, dtype) in layout.items():
        arrays[key] = np.ndarray((num_envs, *shape), dtype, memory, offset)
        offset += _padded_size(shape, dtype, num_envs)
    return arrays


def _padded_size(shape: tuple[int, ...], dtype: str, num_envs: int) -> int:
    size = num_envs * int(np.prod(shape)) * np.dtype(dtype).itemsize
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def encode_state(state: State) -> bytes:
    """``{env: {episode, pending, actions, maybe lost, maybe snapshot: {...}}}`` as safetensors bytes."""
    arrays: Row = {}
    for env, part in state.items():
        plain = {name: value for name, value in part.items() if name != "snapshot"}
        plain |= {f"snapshot/{key}": array for key, array in part.get("snapshot", {}).items()}
        arrays |= {f"{env}/{name}": np.asarray(value) for name, value in plain.items()}
    return safetensors.numpy.save(arrays)


def decode_state(data: bytes) -> State:
    arrays = safetensors.numpy.load(data)
    envs = sorted({key.partition("/")[0] for key in arrays}, key=int)
    return {env: _decode_part(arrays, f"{env}/") for env in envs}


def _decode_part(arrays: Row, prefix: str) -> State:
    state = {
        "episode": int(arrays[f"{prefix}episode"]),
        "pending": bool(arrays[f"{prefix}pending"]),
        "actions": arrays[f"{prefix}actions"],
    }
    if f"{prefix}lost" in arrays:
        return {**state, "lost": bool(arrays[f"{prefix}lost"])}
    prefix += "snapshot/"
    snapshot = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
    return {**state, "snapshot": snapshot} if snapshot else state


def describe_env(config: EnvConfig) -> dict[str, Any]:
    """Config and registrations that let another process make the same env."""
    wrappers = {wrapper.kind: registry.load("wrapper", wrapper.kind) for wrapper in config.wrappers}
    targets = {kind: f"{found.__module__}.{found.__qualname__}" for kind, found in wrappers.items()}
    spec = None if is_dotted(config.id) else _registration(config.id)
    inner = [entry_point for _, entry_point, _ in spec["additional_wrappers"]] if spec else []
    for target in (*targets.values(), *inner, spec["entry_point"] if spec else config.id):
        _check_importable(target)
    return _as_plain(config, {"wrappers": targets, "spec": spec})


def _as_plain(config: EnvConfig, registrations: dict[str, Any]) -> dict[str, Any]:
    try:
        brief = {"config": config.model_dump(mode="json"), **registrations}
        json.dumps(brief)
        return brief
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"The arguments of the environment cannot be sent to worker processes: {error}",
            "Give numbers, texts, lists and dicts only in env.kwargs, or set env.vector=sync.",
        ) from error


def _registration(env_id: str) -> dict[str, Any]:
    spec = find_spec(env_id)
    entry = spec.entry_point
    target = entry if isinstance(entry, str) else f"{entry.__module__}:{entry.__qualname__}"  # type: ignore[union-attr]
    return {
        "id": spec.id,
        "entry_point": target,
        "max_episode_steps": spec.max_episode_steps,
        "kwargs": spec.kwargs,
        "additional_wrappers": [list(wrapper) for wrapper in _named_wrappers(spec)],
    }


def _named_wrappers(spec: EnvSpec) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
    """The wrappers that a registration puts around the env: name, entry point and arguments."""
    for wrapper in spec.additional_wrappers:
        if wrapper.kwargs is None:
            raise ConfigError(
                f"Worker processes cannot make the wrapper '{wrapper.name}' of '{spec.id}': its arguments are unknown.",
                "Let it inherit from gymnasium.utils.RecordConstructorArgs, or set env.vector=sync.",
            )
        yield wrapper.name, wrapper.entry_point, wrapper.kwargs


def _check_importable(target: str) -> None:
    if target.startswith("__main__") or "<" in target:
        raise ConfigError(
            f"Worker processes cannot import '{target}', because it lies in the script that runs.",
            "Move it to a module of its own, or set env.vector=sync.",
        )


def register_described(brief: dict[str, Any]) -> EnvConfig:
    """In the other process: make what :func:`describe_env` described known here; its config."""
    for kind, target in brief["wrappers"].items():
        registry.register("wrapper", kind, target)
    spec = brief["spec"]
    if spec is not None and ":" not in brief["config"]["id"]:
        _register(spec)
    return EnvConfig.model_validate(brief["config"])


def _register(described: dict[str, Any]) -> None:
    """Put a described env into Gymnasium's registry, unless the same one is there already."""
    env_id = described["id"]
    if env_id in gym.registry and json.loads(json.dumps(_registration(env_id))) == described:
        return
    gym.registry.pop(env_id, None)  # the parent has registered something else under this id
    wrappers = tuple(WrapperSpec(*wrapper) for wrapper in described["additional_wrappers"])
    gym.register(**{**described, "additional_wrappers": wrappers})


class Host:
    """The envs of one worker and their places in the shared rows."""

    def __init__(self, brief: dict[str, Any], memory_file: int) -> None:
        config = register_described(brief)
        places, num_envs = range(brief["first"], brief["first"] + brief["count"]), brief["num_envs"]
        envs = [make_env(config) for _ in places]
        specs = read_specs(envs[0], max_episode_steps_of(envs[0]))
        layout = shared_layout(specs, config.log_keys)
        arrays = map_shared(mmap.mmap(memory_file, shared_size(layout, num_envs)), layout, num_envs)
        self._action_spec = specs.action
        self._actions = arrays.pop("action")[places.start : places.stop]
        self._rows = arrays
        self._episodes = {
            place: make_episode(config, env, specs, brief["seed"], brief["stream"], place, num_envs)
            for place, env in zip(places, envs, strict=True)
        }

    def handle(self, kind: bytes, payload: bytes) -> bytes:
        """Carry out one command; what it returns is the answer."""
        if kind == STEP:
            active = json.loads(payload) if payload else self._episodes
            actions = as_action_list(self._action_spec, self._actions)
            for (place, episode), action in zip(self._episodes.items(), actions, strict=True):
                if place in active:
                    episode.step(action, self._rows, place)
        elif kind == BEGIN:
            for place in json.loads(payload):
                self._episodes[place].reset(self._rows, place)
        elif kind == GET_STATE:
            return encode_state({str(place): episode.state() for place, episode in self._episodes.items()})
        elif kind == LOAD_STATE:
            for key, state in decode_state(payload).items():
                self._episodes[int(key)].load_state(state, self._rows, int(key))
        elif kind == LOSE:
            for place in json.loads(payload):
                self._episodes[place].lose(self._rows, place)
        return b""


def serve(channel: socket.socket, memory_file: int) -> None:
    """Answer commands until the parent is gone or an env fails; a failed worker is not used again."""
    host = None
    while True:
        kind, payload = receive(channel)
        try:
            if host is None:
                host, answer = Host(json.loads(payload), memory_file), b""
            else:
                answer = host.handle(kind, payload)
        except Exception as error:
            send(channel, FAILED, json.dumps(_report(error)).encode())
            return
        send(channel, DONE, answer)


def _report(error: Exception) -> dict[str, str]:
    """What the parent should know of a failure; :class:`~reverie.envs.process_vector.WorkerDied` reads it."""
    if isinstance(error, EnvError):
        return {"message": error.message, "fix": error.fix, "topic": error.topic, "cause": error.cause}
    if isinstance(error, ReverieError):
        return {"message": error.message, "fix": error.fix, "cause": error.message}
    trace = traceback.format_exc()
    return {"message": trace, "cause": trace}


def main() -> None:
    for number in STOP_SIGNALS:  # they often go to a whole group of processes, and are the parent's to handle
        signal.signal(number, signal.SIG_IGN)
    try:
        serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
    except (EOFError, ConnectionError):
        return


if __name__ == "__main__":
    main()
