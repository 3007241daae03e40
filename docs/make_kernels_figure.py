"""Draws docs/images/kernels.svg: what the two sweeps of the scan's backward pass hand each other, and a warp's tile.

python docs/make_kernels_figure.py
"""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BLUE, RED, GREY = "#2b6cb0", "#c0392b", "#777777"


def main() -> None:
    figure, (sweeps, tile) = plt.subplots(1, 2, figsize=(11, 4.2), width_ratios=(2.1, 1))
    draw_sweeps(sweeps)
    draw_tile(tile)
    figure.tight_layout()
    figure.savefig("docs/images/kernels.svg")


def draw_sweeps(axes: plt.Axes) -> None:
    axes.set(xlim=(-1.2, 6.6), ylim=(-0.9, 4.6))
    axes.axis("off")
    axes.set_title("Backward pass: two sweeps over the tokens, no states kept", fontsize=11)
    for n in range(6):
        for y, colour, name in ((3.4, BLUE, "h"), (0.6, RED, "g")):
            axes.add_patch(plt.Circle((n, y), 0.28, color=colour))
            axes.text(n, y, f"${name}_{n + 1}$", color="white", ha="center", va="center", fontsize=11)
        axes.annotate("", (n, 2.2), (n, 3.1), arrowprops={"arrowstyle": "->", "color": BLUE})
        axes.text(n, 2.0, f"$C_{n + 1}X_{n + 1}$", ha="center", va="center", fontsize=9, color=BLUE)
        axes.annotate("", (n, 0.9), (n, 1.8), arrowprops={"arrowstyle": "->", "color": GREY})
        if n < 5:
            axes.annotate("", (n + 0.7, 3.4), (n + 0.3, 3.4), arrowprops={"arrowstyle": "->", "color": BLUE, "lw": 2})
            axes.annotate("", (n + 0.3, 0.6), (n + 0.7, 0.6), arrowprops={"arrowstyle": "->", "color": RED, "lw": 2})
    axes.text(2.5, 4.1, "recall_kernel, forward: states again; dC, dA", ha="center", color=BLUE)
    axes.text(2.5, -0.25, "adjoint_kernel, backward: adjoints; dB, du, ddelta", ha="center", color=RED)
    axes.text(2.5, -0.75, r"$q_n = q_{n+1} + C_nX_n - B_nY_n$", ha="center")
    axes.text(5.6, 2.0, "one number a\ntoken and channel", fontsize=8, color=GREY, va="center")


def draw_tile(axes: plt.Axes) -> None:
    axes.set(xlim=(-1.5, 17), ylim=(-5.5, 35))
    axes.axis("off")
    axes.set_title("One warp: 32 states x 4 planes x 16 channels", fontsize=11)
    axes.add_patch(plt.Rectangle((0, 0), 16, 32, color="#dfe7f0"))
    for s in range(0, 32, 4):
        axes.add_patch(plt.Rectangle((0, 31 - s), 2, 1, color=BLUE))
    axes.text(8, -1.8, "16 channels", ha="center", fontsize=9)
    axes.text(-0.9, 16, "32 states", rotation=90, va="center", fontsize=9)
    axes.text(
        8, -4.6, "blue: one thread, all 4 planes of each cell (64 numbers)", ha="center", fontsize=8.5, color=BLUE
    )


if __name__ == "__main__":
    main()
