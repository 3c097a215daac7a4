"""The drawing of the Mixture of Logits, as SVG: from a query and an item to one score.

python -m tools.pages.mixture_drawing        draws it again into docs/images/mixture.svg
"""

from pathlib import Path

IMAGE = Path(__file__).parents[2] / "docs" / "images" / "mixture.svg"
BLUE, ORANGE, GREEN, GREY = "#2563eb", "#d97706", "#059669", "#4b5563"
COMPONENTS = 3
WEIGHTS = ((0.62, 0.04, 0.02), (0.03, 0.21, 0.02), (0.02, 0.01, 0.03))
"""Gate weights that are drawn; they sum to 1."""


def draw() -> str:
    """Return the drawing."""
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 300" font-family="sans-serif" font-size="13">',
        '<rect width="760" height="300" fill="white"/>',
        *_side(x=20, y=30, name="query q", letter="f", color=BLUE),
        *_side(x=20, y=170, name="item x", letter="g", color=ORANGE),
        *_grid(x=270, y=60, title="component scores", below="⟨f_i, g_j⟩ / T", weights=None),
        *_grid(x=430, y=60, title="gate weights π", below="sum to 1", weights=WEIGHTS),
        _arrow(212, 75, 258, 100),
        _arrow(212, 215, 258, 150),
        _arrow(372, 115, 420, 115),
        _text(396, 105, "gate", GREY),
        _arrow(532, 115, 580, 115),
        f'<rect x="588" y="88" width="150" height="54" rx="8" fill="none" stroke="{GREEN}" stroke-width="2"/>',
        _text(663, 112, "φ = Σ π · score", GREEN),
        _text(663, 131, "≤ best single score", GREEN, size=11),
        _text(505, 235, "item components and the item's part of the gate are computed once,", GREY, size=11),
        _text(505, 252, "when the index is built", GREY, size=11),
        _text(505, 276, "φ ≤ best component score: the bound behind every certificate", GREY, size=11),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _side(*, x: int, y: int, name: str, letter: str, color: str) -> list[str]:
    """Draw an embedding and its components."""
    drawn = [
        f'<rect x="{x}" y="{y}" width="74" height="90" rx="8" fill="{color}" opacity="0.15" stroke="{color}"/>',
        _text(x + 37, y + 50, name, color),
    ]
    for place in range(COMPONENTS):
        top = y + 30 * place
        drawn += [
            f'<rect x="{x + 118}" y="{top}" width="70" height="22" rx="4" fill="{color}" '
            f'opacity="{0.9 - 0.25 * place:.2f}"/>',
            _text(x + 153, top + 16, f"{letter}_{place + 1}", "white"),
            _arrow(x + 76, y + 45, x + 114, top + 11),
        ]
    return drawn


def _grid(*, x: int, y: int, title: str, below: str, weights: tuple[tuple[float, ...], ...] | None) -> list[str]:
    """Draw one cell for each component pair."""
    drawn = [_text(x + 48, y - 12, title, GREY)]
    for row in range(COMPONENTS):
        for column in range(COMPONENTS):
            opacity = 0.25 + 0.08 * ((row * 2 + column) % 4) if weights is None else 0.08 + weights[row][column]
            color = GREY if weights is None else GREEN
            drawn.append(
                f'<rect x="{x + 33 * column}" y="{y + 37 * row}" width="30" height="34" rx="4" '
                f'fill="{color}" opacity="{opacity:.2f}"/>'
            )
    return [*drawn, _text(x + 48, y + 130, below, GREY, size=11)]


def _text(x: int, y: int, text: str, color: str, *, size: int = 13) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="middle" fill="{color}" font-size="{size}">{text}</text>'


def _arrow(x: int, y: int, to_x: int, to_y: int) -> str:
    return (
        f'<path d="M{x} {y} L{to_x} {to_y}" stroke="{GREY}" fill="none"/>'
        f'<circle cx="{to_x}" cy="{to_y}" r="3" fill="{GREY}"/>'
    )


if __name__ == "__main__":
    IMAGE.write_text(draw())
    print(IMAGE)
