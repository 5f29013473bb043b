"""The console picture of the docs, drawn from the first lines of a run's metrics.

reverie train CartPole-v1:ppo --seed 2
python -m bench.console_picture runs/CartPole-v1-ppo-s2-1 docs/images/console.svg
"""

from __future__ import annotations

import argparse
import io
import re
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from reverie.config.files import read_config
from reverie.config.resolve import step_budget
from reverie.log.metric_styles import Rules
from reverie.log.sinks import read_jsonl
from reverie.log.table_data import TableData
from reverie.log.table_drawing import draw

THEME = TerminalTheme(
    (22, 24, 33),
    (214, 218, 232),
    [(22, 24, 33), (242, 108, 120), (126, 211, 148), (235, 199, 115), (110, 160, 247), (199, 146, 234),
     (94, 204, 214), (214, 218, 232)],
    [(84, 90, 112), (255, 138, 148), (158, 235, 178), (255, 221, 140), (145, 186, 255), (222, 177, 250),
     (135, 228, 236), (255, 255, 255)],
)  # fmt: skip

FOREIGN = re.compile(r"@font-face \{.*?\}|<!--.*?-->", re.DOTALL)
"""What a picture would fetch from elsewhere; any font of fixed width will do."""


def make_board(run: Path, share: float) -> TableData:
    """The board as it was when ``share`` of the run was done."""
    config = read_config(run / "config.yaml")
    board = TableData(Rules(config.log.rules, config.log.show), step_budget(config.phases))
    board.title = f"{config.env.id} · {config.algorithm.kind} · seed {config.seed}"
    until = share * board.budget_steps
    machine = [record for record in read_jsonl(run / "machine.jsonl") if record["env_steps"] <= until]
    offset = time.perf_counter() - machine[-1]["time"]
    board.began = machine[0]["time"] + offset
    lines = [("metrics", record) for record in read_jsonl(run / "metrics.jsonl") if record["env_steps"] <= until]
    for kind, record in sorted([*lines, *(("machine", record) for record in machine)], key=lambda x: x[1]["env_steps"]):
        board.write(kind, record)
        if kind == "machine":
            board.tick(record["time"] + offset)
    for record in read_jsonl(run / "alerts.jsonl"):
        if record["env_steps"] <= until:
            board.alert(record["level"], record["message"], record["env_steps"])
    return board


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the console of a run as SVG.")
    parser.add_argument("run", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--share", type=float, default=0.6, help="how much of the run is done")
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--height", type=int, default=30)
    options = parser.parse_args()
    screen = Console(
        record=True, width=options.width, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    screen.print(draw(make_board(options.run, options.share), options.width, options.height))
    options.target.parent.mkdir(parents=True, exist_ok=True)
    picture = screen.export_svg(title="reverie train", theme=THEME, unique_id="console")
    options.target.write_text(FOREIGN.sub("", picture))


if __name__ == "__main__":
    main()
