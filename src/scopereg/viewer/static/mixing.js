// Frame and volume in one picture: blended, wiped, or as a chessboard; and what is drawn over it to tell them apart.

import { lineContext } from "./picture.js";

export const TILE_COUNTS = [32, 24, 16, 12, 8, 6, 4, 3, 2]; // along the longer side, the small ones first
const TINT = "rgba(64,153,255,0.2)"; // of what is the volume's
const LINES = [[3, "rgba(0,0,0,0.35)"], [1, "rgba(255,255,255,0.4)"]]; // thin: what goes on across them is compared

// Squares in mm, whatever the shape of a pixel: {mm, columns, rows} of one.
export function tileOf({ columns, rows, frame }, counted) {
  const m = frame.pixel_to_image;
  const [mmX, mmY] = [Math.hypot(m[0], m[4], m[8]), Math.hypot(m[1], m[5], m[9])];
  const mm = Math.max(columns * mmX, rows * mmY) / TILE_COUNTS[counted];
  return { mm, columns: mm / mmX, rows: mm / mmY };
}

export function mixInto(mixture, { mix, weight, tile, update }, cut) {
  const { pixels, columns, rows } = update;
  if (mix === "blend") {
    const part = Math.round(weight * 256);
    for (let k = 0; k < mixture.length; k++) mixture[k] = (pixels[k] * (256 - part) + cut[k] * part) >> 8;
    return;
  }
  const size = tileOf(update, tile);
  for (let row = 0, k = 0; row < rows; row++) {
    const odd = Math.floor(row / size.rows) & 1;
    for (let column = 0; column < columns; column++, k++) {
      const ofFrame = mix === "wipe" ? column >= weight * columns : (Math.floor(column / size.columns) & 1) === odd;
      mixture[k] = ofFrame ? pixels[k] : cut[k];
    }
  }
}

// The edge of a wipe; on a chessboard the edges of all tiles, and a tint on those of the volume.
export function drawSeams(canvas, { mix, weight, tile, update }) {
  const { context, width, height } = lineContext(canvas);
  if (mix === "blend") return;
  const lines = new Path2D();
  const line = (x, y, toX, toY) => {
    lines.moveTo(x, y);
    lines.lineTo(toX, toY);
  };
  if (mix === "wipe") line(weight * width, 0, weight * width, height);
  else {
    const size = tileOf(update, tile);
    const [wide, high] = [(size.columns / update.columns) * width, (size.rows / update.rows) * height];
    const [across, down] = [Math.ceil(width / wide - 1e-6), Math.ceil(height / high - 1e-6)];
    context.fillStyle = TINT;
    for (let k = 0; k < across * down; k++) {
      const [column, row] = [k % across, Math.floor(k / across)];
      if ((column + row) & 1) context.fillRect(column * wide, row * high, wide, high);
    }
    for (let column = 1; column < across; column++) line(column * wide, 0, column * wide, height);
    for (let row = 1; row < down; row++) line(0, row * high, width, row * high);
  }
  for (const [thickness, style] of LINES) {
    [context.lineWidth, context.strokeStyle] = [thickness, style];
    context.stroke(lines);
  }
}
