// What the rigid pose leaves: a grid over the frame, displaced as the tissue is, larger than it is to be seen at all.

import { drawWords, POINT } from "./marks.js";

const FULL_MM = 2; // off the plane, where colours are full
const FLAT = [235, 235, 235], ABOVE = [255, 150, 40], BELOW = [70, 150, 255];
const SMALL = "10.5px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif";
const FAINT = "rgba(255,255,255,0.22)";

// Lines of `deformation` are places x, y in mm of the frame as they were and as they are, and how far off the plane.
export function drawDeformation(context, deformation, frame, [columns, rows], [width, height]) {
  const m = frame.pixel_to_image;
  const place = ([x, y]) => [((x - m[3]) / m[0] + 0.5) * width / columns, ((y - m[7]) / m[5] + 0.5) * height / rows];
  context.save();
  context.lineCap = "round";
  for (const { rest, moved } of deformation.lines) {
    [context.lineWidth, context.strokeStyle] = [0.6, FAINT];
    stroke(context, rest.map(place));
    context.lineWidth = 1.2;
    for (let k = 1; k < moved.length; k++) {
      context.strokeStyle = colourOf((moved[k][2] + moved[k - 1][2]) / 2);
      stroke(context, [place(moved[k - 1]), place(moved[k])]);
    }
  }
  context.restore();
  const number = ` ×${deformation.drawn}, ≤ ${deformation.max_mm.toFixed(1)} mm`;
  drawWords(context, "drawn", width / 2, height - 14, POINT, [width, height], { font: SMALL, number });
}

function stroke(context, places) {
  context.beginPath();
  for (const [x, y] of places) context.lineTo(x, y);
  context.stroke();
}

// Grey in the plane, orange above it, blue below.
export function colourOf(off) {
  const share = Math.min(Math.abs(off) / FULL_MM, 1), end = off > 0 ? ABOVE : BELOW;
  return `rgb(${FLAT.map((from, k) => Math.round(from + share * (end[k] - from))).join(",")})`;
}
