// A grid of millimetres over a picture, and the depth beside the frame.

import { sizeOf } from "./picture.js";

const STEPS_MM = [1, 5, 10, 50];
const LEAST_PX = 16; // between two lines
const WORDS_PX = 14; // between two numbers of a scale
const THIN = "rgba(255,255,255,0.16)", STRONG = "rgba(255,255,255,0.34)", SCALE = "#aab4bf";
const SMALL = "10.5px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif";
const STRONG_MM = 10;
export const MARGIN_PX = 30; // that a scale needs

// The finest step whose lines are told apart on the screen; the coarsest where none is.
export function stepFor(pxPerMm, least = LEAST_PX) {
  return STEPS_MM.find((mm) => mm * pxPerMm >= least) || STEPS_MM[STEPS_MM.length - 1];
}

// `across` and `down` are {px, origin}: pixels of a mm, and where on the screen 0 mm is.
export function drawGrid(context, [width, height], across, down) {
  const step = stepFor(Math.min(across.px, down.px));
  context.save();
  context.lineWidth = 1;
  for (const strong of [false, true]) {
    context.strokeStyle = strong ? STRONG : THIN;
    context.beginPath();
    for (const { at, mm } of linesOf(across, width, step)) {
      if (isStrong(mm, step) !== strong) continue;
      context.moveTo(Math.round(at) + 0.5, 0);
      context.lineTo(Math.round(at) + 0.5, height);
    }
    for (const { at, mm } of linesOf(down, height, step)) {
      if (isStrong(mm, step) !== strong) continue;
      context.moveTo(0, Math.round(at) + 0.5);
      context.lineTo(width, Math.round(at) + 0.5);
    }
    context.stroke();
  }
  context.font = SMALL;
  context.fillStyle = SCALE;
  [context.textAlign, context.textBaseline] = ["right", "bottom"];
  context.fillText(`${step} mm`, width - 4, height - 3);
  context.restore();
}

// Multiples of a step within a length on the screen.
export function linesOf({ px, origin }, length, step) {
  const found = [];
  for (let k = Math.ceil(-origin / (px * step)); origin + k * step * px <= length; k++) {
    found.push({ at: origin + k * step * px, mm: k * step });
  }
  return found;
}

function isStrong(mm, step) {
  return mm % (step < STRONG_MM ? STRONG_MM : 5 * step) === 0;
}

// Millimetres from the upper edge of the frame, which is the transducer's side, left of its picture on a canvas over
// all of the stage; the picture lies in the middle of what the margin leaves.
export function drawDepth(context, stage, picture, depthMm) {
  const [width, height] = stage;
  const [wide, high] = sizeOf(picture);
  const left = Math.round((width + MARGIN_PX - wide) / 2), top = (height - high) / 2;
  const px = high / depthMm;
  const [fine, numbered] = [stepFor(px, 4), stepFor(px, WORDS_PX)];
  context.save();
  context.strokeStyle = context.fillStyle = SCALE;
  context.lineWidth = 1;
  context.font = SMALL;
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.beginPath();
  for (const { at, mm } of linesOf({ px, origin: 0 }, high + 0.5, fine)) {
    const y = Math.min(Math.round(top + at) + 0.5, Math.floor(top + high) - 0.5);
    const long = mm % numbered === 0;
    context.moveTo(left - 1, y);
    context.lineTo(left - (long ? 7 : mm % 5 === 0 ? 5 : 3), y);
    if (!long) continue;
    const words = mm === 0 ? "mm" : String(mm);
    context.fillText(words, left - 9, Math.min(Math.max(y, top + 6), top + high - 5));
  }
  context.stroke();
  context.restore();
}
