"""Pictures of the simulated systems, for videos and for inspecting a rollout."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from metaroll.envs.base.canvas import BLUE, GRAY, GREEN, INK, PALE, PAPER, RED, Canvas, Point
from metaroll.envs.sims.model import SimModel

__all__ = ["HEIGHT", "WIDTH", "draw"]

WIDTH, HEIGHT = 480, 360

Params = Mapping[str, float]

_ENTRY_SIZE = 15


def draw(model: SimModel, state: np.ndarray, memory: np.ndarray, params: Params) -> np.ndarray:
    """A picture of ``state``, uint8 ``(360, 480, 3)``.

    Args:
        model: Which system; one without its own picture, or in a state that is not finite, is shown as bars, one per
            entry of the state.
        state: Shape ``(S,)``.
        memory: Shape ``(M,)``.
        params: Domain parameters, which give lengths and sizes.
    """
    canvas = Canvas(WIDTH, HEIGHT)
    state, memory = np.asarray(state, dtype=np.float64), np.asarray(memory, dtype=np.float64)
    known = np.isfinite(state).all() and np.isfinite(memory).all()
    picture: Callable[..., None] = _PICTURES.get(model.name, _draw_bars) if known else _draw_bars
    # The letters are large enough for videos and pages, which show the picture at two thirds of its size.
    canvas.text((14, HEIGHT - 24), model.name[:1].upper() + model.name[1:], size=18)
    if picture is not _draw_gaussian:
        entries = [f"{label} {value:.3g}" for label, value in zip(model.state_labels, state, strict=True)]
        for line, text in enumerate(_lines(entries, _entries_per_line(canvas, model.state_labels))):
            canvas.text((14, HEIGHT - 46 - 18 * line), text, GRAY, size=_ENTRY_SIZE)
    picture(canvas, model, state, memory, params)
    return canvas.pixels()


def _lines(entries: Sequence[str], number: int) -> list[str]:
    return ["   ".join(entries[begin : begin + number]) for begin in range(0, len(entries), number)]


def _entries_per_line(canvas: Canvas, labels: Sequence[str]) -> int:
    """How many entries fit into a line whatever their values are, so that the lines of a video do not jump."""
    widest = [f"{label} {-1.23e-05:.3g}" for label in labels]
    room = WIDTH - 2 * 14
    fitting = (
        number
        for number in range(4, 1, -1)
        if all(canvas.text_width(line, _ENTRY_SIZE) <= room for line in _lines(widest, number))
    )
    num_lines = math.ceil(len(labels) / next(fitting, 1))
    return math.ceil(len(labels) / num_lines)  # lines of about the same length


def _moved(origin: Point, offset: Point, angle: float) -> Point:
    """``offset`` turned by ``angle`` counter-clockwise, from ``origin``."""
    sin, cos = math.sin(angle), math.cos(angle)
    return origin[0] + offset[0] * cos - offset[1] * sin, origin[1] + offset[0] * sin + offset[1] * cos


# -- one function per system ----------------------------------------------------------------------------------------


def _draw_oscillator(canvas: Canvas, model: SimModel, state: np.ndarray, memory: np.ndarray, params: Params) -> None:
    scale, wall, floor = 170.0, 30.0, 110.0
    mass = WIDTH / 2 + 20 + scale * state[0]
    canvas.line([(wall, floor - 20), (wall, floor + 90)], PALE, 6)
    canvas.line([(wall, floor - 20), (WIDTH - 20, floor - 20)], PALE, 4)
    canvas.line([(WIDTH / 2 + 20, floor - 32), (WIDTH / 2 + 20, floor - 14)], GREEN, 2)
    coils, left, right = 14, wall + 4, mass - 32
    zigzag = [(left + (right - left) * i / coils, floor + 12 + (12 if i % 2 else -12)) for i in range(1, coils)]
    canvas.line([(left, floor + 12), *zigzag, (right, floor + 12)], INK, 2)
    canvas.box((mass, floor + 12), 64, 60, BLUE)


def _draw_pendulum(canvas: Canvas, model: SimModel, state: np.ndarray, memory: np.ndarray, params: Params) -> None:
    hinge, length = (WIDTH / 2, 160.0), 110.0 * min(params["pole_length"], 1.2)
    canvas.line([hinge, (WIDTH / 2, 160.0 + length)], PALE, 2)
    tip = _moved(hinge, (0.0, -length), state[0])
    canvas.line([hinge, tip], RED, 9)
    canvas.disc(hinge, 6, INK)


def _draw_ball_on_beam(canvas: Canvas, model: SimModel, state: np.ndarray, memory: np.ndarray, params: Params) -> None:
    scale = 400.0 / params["beam_length"]
    middle, angle = (WIDTH / 2, 140.0), state[1] + params["ang_offset"]
    radius = max(5.0, scale * params["ball_radius"])
    thick = max(4.0, scale * params["beam_thickness"])
    canvas.polygon([(WIDTH / 2 - 26, 70), (WIDTH / 2 + 26, 70), middle], PALE)
    canvas.box(middle, 400.0, thick, BLUE, angle)
    canvas.line([_moved(middle, (0, -thick / 2), angle), _moved(middle, (0, thick / 2), angle)], PAPER, 2)
    ball = _moved(middle, (scale * state[0], thick / 2 + radius), angle)
    canvas.disc(ball, radius, RED)
    # A mark on the ball shows that it rolls.
    turned = angle - state[0] / params["ball_radius"]
    canvas.line([ball, _moved(ball, (0, 0.7 * radius), turned)], PAPER, 2)


def _draw_cart_pole(canvas: Canvas, model: SimModel, state: np.ndarray, memory: np.ndarray, params: Params) -> None:
    rail, middle = 158.0, WIDTH / 2
    scale = min(420.0 / params["rail_length"], 142.0 / (2.0 * params["pole_length"]))
    half = scale * params["rail_length"] / 2
    canvas.line([(middle - half, rail), (middle + half, rail)], PALE, 6)
    for side in (-1, 1):
        canvas.line([(middle + side * half, rail - 12), (middle + side * half, rail + 12)], INK, 4)
    canvas.line([(middle, rail - 14), (middle, rail - 8)], GREEN, 2)
    cart = (middle + scale * state[0], rail)
    canvas.box(cart, 54, 26, BLUE)
    tip = _moved(cart, (0.0, -2.0 * scale * params["pole_length"]), state[1])
    canvas.line([cart, tip], RED, 7)
    canvas.disc(cart, 5, INK)


def _draw_qube(canvas: Canvas, model: SimModel, state: np.ndarray, memory: np.ndarray, params: Params) -> None:
    """In perspective from the front, a little from above, the arm pointing at the viewer at theta = 0."""
    scale = 800.0

    def seen(x: float, y: float, z: float) -> Point:
        """Pixel of a point in m: x to the right, y away from the viewer, z up."""
        return WIDTH / 2 + scale * x, 150.0 + scale * (0.9 * z + 0.4 * y)

    theta, alpha = state[0], state[1]
    arm, pole = params["length_rot_pole"], params["length_pend_pole"]
    ring = [2.0 * math.pi * i / 48 for i in range(49)]
    side = 0.05
    body = [(-side, -side), (side, -side), (side, side), (-side, side)]
    canvas.polygon([seen(x, y, -0.12) for x, y in body], PALE)
    canvas.polygon(
        [seen(-side, -side, -0.12), seen(side, -side, -0.12), seen(side, -side, 0), seen(-side, -side, 0)], INK
    )
    canvas.polygon([seen(x, y, 0.0) for x, y in body], (75, 80, 88))
    canvas.line([seen(arm * math.sin(t), -arm * math.cos(t), 0.01) for t in ring], PALE, 1)
    tip = (arm * math.sin(theta), -arm * math.cos(theta), 0.01)
    # The pendulum swings in the plane across the arm: to the side of growing theta for a positive alpha.
    across = (math.cos(theta), math.sin(theta))
    reach, height = pole * math.sin(alpha), -pole * math.cos(alpha)
    end = (tip[0] + reach * across[0], tip[1] + reach * across[1], tip[2] + height)
    parts = [
        lambda: canvas.line([seen(0, 0, 0.01), seen(*tip)], BLUE, 9),
        lambda: canvas.line([seen(*tip), seen(*end)], RED, 7),
    ]
    for part in parts if math.cos(theta) > 0 else reversed(parts):  # nearer parts are drawn later
        part()
    canvas.disc(seen(0, 0, 0.01), 7, INK)


def _draw_ball_balancer(canvas: Canvas, model: SimModel, state: np.ndarray, memory: np.ndarray, params: Params) -> None:
    """The plate from above, and its slope along either axis beside it, enlarged."""
    side = 230.0
    scale, middle = side / params["plate_length"], (150.0, 140.0)
    canvas.box(middle, side, side, (226, 229, 233))
    canvas.line([(middle[0] - 8, middle[1]), (middle[0] + 8, middle[1])], GREEN, 2)
    canvas.line([(middle[0], middle[1] - 8), (middle[0], middle[1] + 8)], GREEN, 2)
    radius = max(4.0, scale * params["ball_radius"])
    canvas.disc((middle[0] + scale * state[2], middle[1] + scale * state[3]), radius, RED)
    for axis, (label, height) in enumerate((("x", 200.0), ("y", 90.0))):
        slope = float(memory[axis])
        center = (380.0, height)
        canvas.line([(center[0] - 70, height), (center[0] + 70, height)], PALE, 1)
        # Positive angles let the ball roll to the right.
        canvas.box(center, 140, 7, BLUE, -3.0 * slope)
        place = 0.5 * side / scale
        along = 70.0 * state[2 + axis] / place
        canvas.disc(_moved(center, (along, 12.0), -3.0 * slope), 8, RED)
        canvas.text((center[0] - 92, height - 4), label, size=15)
    canvas.text((310, 30), "slopes x 3", GRAY, size=15)


def _draw_catapult(canvas: Canvas, model: SimModel, state: np.ndarray, memory: np.ndarray, params: Params) -> None:
    """Draw the height of the throw, on a logarithmic scale."""
    ground, base = 50.0, (WIDTH / 2, 50.0)
    canvas.line([(40, ground), (WIDTH - 40, ground)], PALE, 4)
    canvas.polygon([(base[0] - 40, ground), (base[0] + 40, ground), (base[0], ground + 26)], BLUE)
    for power in range(5):
        level = ground + 40 + 48.0 * power
        canvas.line([(90, level), (WIDTH - 90, level)], PALE, 1)
        canvas.text((WIDTH - 84, level - 4), f"{10**power} m", GRAY, size=15)
    height = abs(float(state[0]))
    level = ground + 40 + 48.0 * math.log10(height) if height > 0.3 else ground + 40
    canvas.disc((base[0], min(level, HEIGHT - 60.0) if height > 0 else ground + 40), 12, RED)


def _draw_gaussian(canvas: Canvas, model: SimModel, state: np.ndarray, memory: np.ndarray, params: Params) -> None:
    """The draws, and the ellipses of one and two standard deviations."""
    a, b, mix = params["s_1"] ** 2, params["s_2"] ** 2, math.tanh(params["rho"])
    spread = 2.5 * max(a, b, 0.1)
    scale, middle = 140.0 / spread, (WIDTH / 2, 160.0)

    def seen(x: float, y: float) -> Point:
        return middle[0] + scale * (x - params["m_1"]), middle[1] + scale * (y - params["m_2"])

    for size in (2.0, 1.0):
        ring = [2.0 * math.pi * i / 64 for i in range(65)]
        orthogonal = math.sqrt(1.0 - mix * mix)
        points = [(size * math.cos(t), size * math.sin(t)) for t in ring]
        canvas.line(
            [seen(params["m_1"] + a * u, params["m_2"] + b * (mix * u + orthogonal * v)) for u, v in points], PALE, 2
        )
    for x, y in state.reshape(-1, 2):
        canvas.disc(seen(float(x), float(y)), 6, RED)


def _draw_bars(canvas: Canvas, model: SimModel, state: np.ndarray, memory: np.ndarray, params: Params) -> None:
    """One bar per entry of the state, to the right where it is positive, shortened as it grows."""
    gap = min(40.0, 220.0 / len(state))
    for i, (label, value) in enumerate(zip(model.state_labels, state, strict=True)):
        level = 240.0 - gap * i
        length = 150.0 * math.tanh(float(value)) if math.isfinite(value) else 0.0
        canvas.box((WIDTH / 2 + 20 + length / 2, level), abs(length), 0.5 * gap, BLUE)
        canvas.text((20, level - 4), label, size=15)


_PICTURES = {
    "one mass oscillator": _draw_oscillator,
    "pendulum": _draw_pendulum,
    "ball on beam": _draw_ball_on_beam,
    "cart-pole": _draw_cart_pole,
    "Qube": _draw_qube,
    "ball balancer": _draw_ball_balancer,
    "catapult": _draw_catapult,
    "two-dimensional Gaussian": _draw_gaussian,
}
"""Name of a system -> how it is drawn."""
