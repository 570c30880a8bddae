"""Writes the reference pages that are made from code. Run it after changing a setting or a status."""

from __future__ import annotations

from pathlib import Path

from dicomm import _native, config, errors

GROUPS = {
    "caller": "The caller's mistake: nothing is lost",
    "request": "This request is lost",
    "peer": "This peer is lost",
    "communicator": "This communicator is lost",
    "process": "This process is in trouble",
}


def error_page() -> str:
    lines = [
        "# Errors",
        "",
        "One list in `dicomm.h` gives the C enum, the texts, the Python classes and this page (made",
        "by `docs/generate.py`). Every class derives from `dicomm.DicommError`, whose attributes name the",
        "operation, the ranks, the path, the bytes, the time waited and the foreign code.",
    ]
    for group, title in GROUPS.items():
        lines += [
            "",
            f"## {title}",
            "",
            "| status | value | Python class | also a | meaning |",
            "|---|---|---|---|---|",
        ]
        for name, code in _native.STATUSES.items():
            if code < 10 or _native.ffi.string(_native.lib.dicomm_status_group(code)).decode() != group:
                continue
            cls = getattr(errors, errors.class_name(name))
            also = ", ".join(f"`{base.__name__}`" for base in cls.__bases__[1:])
            text = _native.ffi.string(_native.lib.dicomm_status_text(code)).decode()
            lines.append(f"| `DICOMM_{name}` | {code} | `{cls.__name__}` | {also} | {text} |")
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """Text by path below docs/."""
    return {"reference/config.md": config.reference(), "reference/errors.md": error_page()}


if __name__ == "__main__":
    for name, text in pages().items():
        path = Path(__file__).parent / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
