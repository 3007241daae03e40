// What is drawn over pictures at the same size however near they are: rulers with their millimetres, points with names.

export const RULER = "#ffe45c"; // over pictures and in 3D, apart from lights, planes and labels
export const POINT = "#ffffff";
const RIM = "rgba(0,0,0,0.7)";
const FONT = "600 13px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif";
const SMALL = FONT.replace("13px", "11.5px");
const TICK = 6;
const WORDS_WIDE = 66; // of a length, about

// Words on a dark ground of their own, kept within the canvas; a name that is too long for it is cut, never the
// number behind it.
export function drawWords(context, name, x, y, colour, [width, height], { font = FONT, number = "" } = {}) {
  context.save();
  context.font = font;
  const words = fitted(context, name, width - 16 - context.measureText(number).width) + number;
  context.textBaseline = "middle";
  context.textAlign = "left";
  const wide = context.measureText(words).width + 10;
  const left = Math.min(Math.max(x - wide / 2, 2), Math.max(width - wide - 2, 2));
  const middle = Math.min(Math.max(y, 11), Math.max(height - 11, 11));
  context.fillStyle = RIM;
  context.beginPath();
  context.roundRect(left, middle - 10, wide, 20, 5);
  context.fill();
  context.fillStyle = colour;
  context.fillText(words, left + 5, middle + 0.5);
  context.restore();
}

function fitted(context, words, most) {
  if (context.measureText(words).width <= most) return words;
  let count = words.length - 1;
  while (count > 1 && context.measureText(`${words.slice(0, count)}…`).width > most) count--;
  return `${words.slice(0, count)}…`;
}

// A ring with a dot, hollow for what is not just here, and its name beside it.
export function drawPoint(context, { x, y }, name, size, look = {}) {
  const { colour = POINT, faint = 0, hollow = false, active = false, number = "" } = look;
  context.save();
  context.globalAlpha = 1 - 0.3 * Math.min(faint, 1);
  for (const [width, style] of [[4, RIM], [active ? 2.4 : 1.6, colour]]) {
    [context.lineWidth, context.strokeStyle] = [width, style];
    context.setLineDash(hollow ? [3, 2.5] : []);
    context.beginPath();
    context.arc(x, y, active ? 9 : 5.5, 0, 7);
    context.stroke();
  }
  if (!hollow) {
    context.fillStyle = colour;
    context.beginPath();
    context.arc(x, y, 1.8, 0, 7);
    context.fill();
  }
  context.font = SMALL;
  const wide = context.measureText(name + number).width;
  drawWords(context, name, x + 13 + wide / 2, y - 12, colour, size, { font: SMALL, number });
  context.restore();
}

// From one end to the other, with a stroke across each, and its length beside the middle.
export function drawRuler(context, from, to, words, size, active = false) {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy) || 1;
  const [ux, uy] = [dx / length, dy / length];
  const lines = new Path2D();
  lines.moveTo(from.x, from.y);
  lines.lineTo(to.x, to.y);
  for (const end of [from, to]) {
    lines.moveTo(end.x - uy * TICK, end.y + ux * TICK);
    lines.lineTo(end.x + uy * TICK, end.y - ux * TICK);
  }
  context.save();
  context.lineCap = "round";
  for (const [width, style] of [[5, RIM], [active ? 2.5 : 1.7, RULER]]) {
    [context.lineWidth, context.strokeStyle] = [width, style];
    context.stroke(lines);
  }
  if (active) {
    for (const end of [from, to]) {
      context.beginPath();
      context.arc(end.x, end.y, 9, 0, 7);
      context.lineWidth = 1.2;
      context.stroke();
    }
  }
  context.restore();
  // Beside the middle, on the upper side, so far away that they do not cover the line.
  const up = ux > 0 || (ux === 0 && uy > 0) ? 1 : -1;
  const away = WORDS_WIDE / 2 * Math.abs(uy) + 16;
  const [x, y] = [(from.x + to.x) / 2 + up * uy * away, (from.y + to.y) / 2 - up * ux * away];
  drawWords(context, words, x, y, RULER, size);
}
