"""A worker process that hosts some envs of a vector: ``python -m reverie.envs.worker <socket> <memory>``.

It is started as a new interpreter, not forked or spawned, so scripts need no ``__main__`` guard and the parent's memory
is not copied. Rows and actions are exchanged through shared memory. The socket carries one byte per command, and JSON
or safetensors for its arguments. Nothing is pickled. A worker ends when its socket closes: when the vector is closed or
the parent dies for any reason.
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
from contextlib import suppress
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
from reverie.machine.denormals import are_flushed, flush_denormals

START, BEGIN, STEP, GET_STATE, LOAD_STATE, ABANDON = b"I", b"B", b"S", b"G", b"L", b"X"
DONE, FAILED = b"K", b"E"
_HEADER = struct.Struct("<cI")
_ALIGNMENT = 64


def fresh_interpreter(module: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Command and environment that run a module in a new process with the module search path of this one."""
    search_path = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return [sys.executable, "-P", "-m", module, *arguments], {**os.environ, "PYTHONPATH": search_path}


def send(channel: socket.socket, kind: bytes, payload: bytes = b"") -> None:
    channel.sendall(_HEADER.pack(kind, len(payload)) + payload)


def receive(channel: socket.socket) -> tuple[bytes, bytes]:
    """The next message. Raises EOFError when the other side has closed."""
    kind, length = _HEADER.unpack(_receive_exactly(channel, _HEADER.size))
    return kind, _receive_exactly(channel, length)


def _receive_exactly(channel: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        received = channel.recv(length - len(data))
        if not received:
            raise EOFError
        data += received
    return data


def shared_layout(specs: Specs, log_keys: tuple[str, ...]) -> Layout:
    """Layout of the shared memory: the actions, then the arriving rows."""
    return {"action": (specs.action.shape, specs.action.dtype), **row_layout(specs, log_keys)}


def shared_size(layout: Layout, num_envs: int) -> int:
    return sum(_padded_size(shape, dtype, num_envs) for shape, dtype in layout.values())


def map_shared(memory: mmap.mmap, layout: Layout, num_envs: int) -> Row:
    """Views of the shared memory, one array per column."""
    arrays, offset = {}, 0
    for key, (shape, dtype) in layout.items():
        arrays[key] = np.ndarray((num_envs, *shape), dtype, memory, offset)
        offset += _padded_size(shape, dtype, num_envs)
    return arrays


def _padded_size(shape: tuple[int, ...], dtype: str, num_envs: int) -> int:
    size = num_envs * int(np.prod(shape)) * np.dtype(dtype).itemsize
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def encode_state(state: State) -> bytes:
    """``{env: {episode, pending, actions, optional: lost, snapshot: {...}}}`` as safetensors bytes."""
    arrays: Row = {}
    for env, episode in state.items():
        values = {name: value for name, value in episode.items() if name != "snapshot"}
        values |= {f"snapshot/{key}": array for key, array in episode.get("snapshot", {}).items()}
        arrays |= {f"{env}/{name}": np.asarray(value) for name, value in values.items()}
    return safetensors.numpy.save(arrays)


def decode_state(data: bytes) -> State:
    arrays = safetensors.numpy.load(data)
    envs = sorted({key.partition("/")[0] for key in arrays}, key=int)
    return {env: _decode_episode(arrays, f"{env}/") for env in envs}


def _decode_episode(arrays: Row, prefix: str) -> State:
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
    """The config and registrations with which another process can make the same env."""
    wrappers = {wrapper.kind: registry.load("wrapper", wrapper.kind) for wrapper in config.wrappers}
    targets = {kind: f"{found.__module__}.{found.__qualname__}" for kind, found in wrappers.items()}
    spec = None if is_dotted(config.id) else _registration(config.id)
    inner = [entry_point for _, entry_point, _ in spec["additional_wrappers"]] if spec else []
    for target in (*targets.values(), *inner, spec["entry_point"] if spec else config.id):
        _check_importable(target)
    return _as_json(config, {"wrappers": targets, "spec": spec})


def _as_json(config: EnvConfig, registrations: dict[str, Any]) -> dict[str, Any]:
    try:
        brief = {"config": config.model_dump(mode="json"), "flush_denormals": are_flushed(), **registrations}
        json.dumps(brief)
        return brief
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"The arguments of the environment cannot be sent to worker processes: {error}",
            "Use only numbers, strings, lists and dicts in env.kwargs, or set env.vector=sync.",
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
    """Name, entry point and arguments of the wrappers in a registration."""
    for wrapper in spec.additional_wrappers:
        if wrapper.kwargs is None:
            raise ConfigError(
                f"Worker processes cannot make the wrapper '{wrapper.name}' of '{spec.id}': its arguments are unknown.",
                "Inherit from gymnasium.utils.RecordConstructorArgs in the wrapper, or set env.vector=sync.",
            )
        yield wrapper.name, wrapper.entry_point, wrapper.kwargs


def _check_importable(target: str) -> None:
    if target.startswith("__main__") or "<" in target:
        raise ConfigError(
            f"Worker processes cannot import '{target}', because it is defined in the running script.",
            "Move it to another module, or set env.vector=sync.",
        )


def register_described(brief: dict[str, Any]) -> EnvConfig:
    """In the other process: register what :func:`describe_env` described and return its config.

    Physics computes with denormals as in the process that described the env.
    """
    flush_denormals(brief["flush_denormals"])
    for kind, target in brief["wrappers"].items():
        registry.register("wrapper", kind, target)
    spec = brief["spec"]
    if spec is not None and ":" not in brief["config"]["id"]:
        _register(spec)
    return EnvConfig.model_validate(brief["config"])


def _register(described: dict[str, Any]) -> None:
    """Register a described env with Gymnasium, unless it is registered already."""
    env_id = described["id"]
    with suppress(ConfigError):  # otherwise the env's package, imported later, would register the id again
        find_spec(env_id)
    if env_id in gym.registry and json.loads(json.dumps(_registration(env_id))) == described:
        return
    gym.registry.pop(env_id, None)  # here the id belongs to another env than in the parent
    wrappers = tuple(WrapperSpec(*wrapper) for wrapper in described["additional_wrappers"])
    gym.register(**{**described, "additional_wrappers": wrappers})


class Host:
    """The envs of one worker, which write their rows into the shared memory."""

    def __init__(self, brief: dict[str, Any], memory_file: int) -> None:
        config = register_described(brief)
        indices, num_envs = range(brief["first"], brief["first"] + brief["count"]), brief["num_envs"]
        envs = [make_env(config) for _ in indices]
        specs = read_specs(envs[0], max_episode_steps_of(envs[0]))
        layout = shared_layout(specs, config.log_keys)
        arrays = map_shared(mmap.mmap(memory_file, shared_size(layout, num_envs)), layout, num_envs)
        self._action_spec = specs.action
        self._actions = arrays.pop("action")[indices.start : indices.stop]
        self._rows = arrays
        self._episodes = {
            index: make_episode(config, env, specs, brief["seed"], brief["stream"], index, num_envs)
            for index, env in zip(indices, envs, strict=True)
        }

    def handle(self, kind: bytes, payload: bytes) -> bytes:
        """Carry out one command and return the answer."""
        if kind == STEP:
            active = json.loads(payload) if payload else self._episodes
            actions = as_action_list(self._action_spec, self._actions)
            for (index, episode), action in zip(self._episodes.items(), actions, strict=True):
                if index in active:
                    episode.step(action, self._rows, index)
        elif kind == BEGIN:
            for index in json.loads(payload):
                self._episodes[index].reset(self._rows, index)
        elif kind == GET_STATE:
            return encode_state({str(index): episode.state() for index, episode in self._episodes.items()})
        elif kind == LOAD_STATE:
            for key, state in decode_state(payload).items():
                self._episodes[int(key)].load_state(state, self._rows, int(key))
        elif kind == ABANDON:
            for index in json.loads(payload):
                self._episodes[index].abandon(self._rows, index)
        return b""


def serve(channel: socket.socket, memory_file: int) -> None:
    """Answer commands until the parent is gone or an env fails. A failed worker is not used again."""
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
    """Report of a failure for :class:`~reverie.envs.worker_process.WorkerDied`."""
    if isinstance(error, EnvError):
        return {"message": error.message, "fix": error.fix, "topic": error.topic, "cause": error.cause}
    if isinstance(error, ReverieError):
        return {"message": error.message, "fix": error.fix, "cause": error.message}
    trace = traceback.format_exc()
    return {"message": trace, "cause": trace}


def main() -> None:
    for number in STOP_SIGNALS:  # the parent handles them; they are often sent to the whole process group
        signal.signal(number, signal.SIG_IGN)
    try:
        serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
    except (EOFError, ConnectionError):
        return


if __name__ == "__main__":
    main()
