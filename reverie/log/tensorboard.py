"""TensorBoard curves, histograms, videos and figures of a run, in ``<run>/tensorboard``.

Event files cannot be truncated, so after a resume they would repeat the records since the checkpoint. Every start
therefore rebuilds the curves from the JSONL files. Histograms, videos and figures get one event file per position in
the run, and a resume deletes the files after its checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reverie.core.config import ComponentConfig
from reverie.log.loggers import RunInfo
from reverie.log.media import encode_gif, encode_png, histogram_of
from reverie.log.sinks import KINDS, read_jsonl

NOT_CURVES = ("env_steps", "phase", "time")
MEDIA = "media"


class TensorBoardConfig(ComponentConfig):
    """Writes event files for TensorBoard."""

    kind: str = "tensorboard"


class TensorBoardSink:
    """Writes all metrics, machine records and episode returns over env steps (or updates)."""

    Config = TensorBoardConfig

    def __init__(self, config: TensorBoardConfig, run: RunInfo) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary, self._histogram, self._file_writer = Event, Summary, HistogramProto, EventFileWriter
        self.folder = run.folder / "tensorboard"
        self._counter = run.counter
        _delete_outdated(self.folder, getattr(run, run.counter))
        self._writer = EventFileWriter(str(self.folder))
        self._media: tuple[int, Any] | None = None
        self._draw = {"histogram": self.add_histogram, "video": self.add_video, "figure": self.add_figure}
        for kind in KINDS:
            for record in read_jsonl(run.folder / f"{kind}.jsonl"):
                self.write(kind, record)

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        if kind in self._draw:
            self._draw[kind](record)
        elif kind == "scores":
            self._add_curves(record, {"episode/return": record["return"], "episode/length": record["length"]})
        elif kind in ("metrics", "machine"):
            self._add_curves(record, {key: value for key, value in record.items() if key not in NOT_CURVES})

    def add_histogram(self, record: Mapping[str, Any]) -> None:
        counts, edges, values = histogram_of(record["values"])
        if not len(values):
            return
        histogram = self._histogram(
            min=values.min(), max=values.max(), num=len(values), sum=values.sum(), sum_squares=(values**2).sum(),
            bucket_limit=edges[1:].tolist(), bucket=counts.tolist(),
        )  # fmt: skip
        self._add_media(record, histo=histogram)

    def add_video(self, record: Mapping[str, Any]) -> None:
        frames = record["frames"]
        self._add_image(record, encode_gif(frames, record["fps"]), *frames.shape[1:])

    def add_figure(self, record: Mapping[str, Any]) -> None:
        self._add_image(record, encode_png(record["image"]), *record["image"].shape)

    def close(self) -> None:
        self._writer.close()
        if self._media is not None:
            self._media[1].close()

    def _add_curves(self, record: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        points = [self._summary.Value(tag=key, simple_value=float(value)) for key, value in values.items()]
        self._writer.add_event(self._make_event(record, points))

    def _add_image(self, record: Mapping[str, Any], data: bytes, height: int, width: int, channels: int) -> None:
        image = self._summary.Image(encoded_image_string=data, height=height, width=width, colorspace=channels)
        self._add_media(record, image=image)

    def _add_media(self, record: Mapping[str, Any], **content: Any) -> None:
        writer = self._media_writer(record[self._counter])
        writer.add_event(self._make_event(record, [self._summary.Value(tag=record["name"], **content)]))
        writer.flush()

    def _media_writer(self, position: int) -> Any:
        """One file per position in the run, so that a resume can delete the files that it writes again."""
        if self._media is None or self._media[0] != position:
            if self._media is not None:
                self._media[1].close()
            # In a separate folder: TensorBoard reads the files of one folder in order, each to its end.
            self._media = position, self._file_writer(str(self.folder / MEDIA), filename_suffix=f".{position}")
        return self._media[1]

    def _make_event(self, record: Mapping[str, Any], values: list[Any]) -> Any:
        step = record.get(self._counter, 0)  # machine records of older runs lack updates
        return self._event(wall_time=time.time(), step=step, summary=self._summary(value=values))


def _delete_outdated(folder: Path, position: int) -> None:
    """Delete all curves, and the media from after the checkpoint."""
    for path in folder.glob("*tfevents*"):
        path.unlink()
    for path in (folder / MEDIA).glob("*tfevents*"):
        number = path.suffix.removeprefix(".")
        if not number.isdigit() or int(number) > position:
            path.unlink()
