"""Names that help and shell completion offer, found without loading anything heavy: nobody waits for a shell."""

from __future__ import annotations

from pathlib import Path

PACKAGE_PRESETS = Path(__file__).parent.parent / "presets"
SPEC_FOLDERS = ("env", "algo")


def preset_names() -> list[str]:
    """Presets that may follow ENV:VARIANT, without their folders."""
    folders = [folder for root in _roots() for folder in root.iterdir() if folder.name not in SPEC_FOLDERS]
    return sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})


def preset_help() -> str:
    """A line for the help of ``train``."""
    return f"Presets that may follow ENV:VARIANT: {', '.join(preset_names())}; or a YAML file of your own."


def _roots() -> list[Path]:
    return [root for root in (Path("presets"), PACKAGE_PRESETS) if root.is_dir()]
