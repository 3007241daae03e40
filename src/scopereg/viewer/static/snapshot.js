// A picture to keep: what the page shows, with its numbers written beneath, and the same as JSON within the file.

import { saveBlob, stamp } from "./files.js";
import { paint } from "./painter.js";
import { withText } from "./png.js";
import { inWords, inWorld, lengthOf } from "./rulers.js";
import { frameName } from "./surfaces.js";
import { INKS } from "./theme.js";

const FORMAT = "scopereg-snapshot-1";
const FINENESS = 1.5; // pixels of the file for one of the page, at least
const CLOCK_S = 1e8; // what is more counts from 1970
const EDGE = 12, LINE = 19, LABEL = 104; // of what is written, in pixels of the page
const FAMILY = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif";

export async function snapshot(page) {
  const facts = factsOf(page);
  const canvas = draw(page, facts);
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  if (!blob) throw new Error("the browser made no picture of it");
  const png = withText(new Uint8Array(await blob.arrayBuffer()), "scopereg", JSON.stringify(facts));
  const name = [facts.volume, facts.frame && facts.frame.name, stamp()].filter(Boolean).join("-");
  saveBlob(`scopereg-${name.replace(/[^\w.-]+/g, "_").slice(0, 120)}.png`, new Blob([png], { type: "image/png" }));
}

// All that is known of what is shown; poses are ImageToVolume in LPS mm.
export function factsOf({ model, verdict, rulers, notes }) {
  const { state, update, volume, placed } = model;
  const shown = verdict.shown;
  const told = {};
  for (const name of ["ok", "reason", "hints", "expected_mm", "bound_mm", "confidence", "calibrated_on", "error_mm"]) {
    told[name] = update ? update[name] ?? null : null;
  }
  const frame = update && {
    name: frameName(update, state), number: update.frame_number ?? update.number, time_s: update.time_s ?? null,
    pixel_to_image: update.frame.pixel_to_image, shape: update.frame.shape,
  };
  return {
    format: FORMAT, version: state ? state.version : "", taken: new Date().toISOString(), source: state ? state.source : "",
    volume: volume ? volume.info.name : "", frame, method: update ? update.method || state.method : "",
    light: shown.light, word: shown.word, said: shown.reason, ...told,
    image_to_volume: update ? update.image_to_volume : null,
    pose: update && update.image_to_volume ? anglesOf(update.image_to_volume) : null,
    notes: notes.here.map(({ text }) => text), in_this_volume: Boolean(placed), brightness: [model.low, model.high],
    rulers: rulers.all.map((ruler) => ({ mm: ruler.ends.length > 1 ? lengthOf(ruler) : null, on: ruler.words, words: inWords(ruler), ends: inWorld(ruler) })),
  };
}

// Translation and angles of a pose, R = Rz Ry Rx, as tables of scopereg have them; at the poles x is 0.
export function anglesOf(m) {
  const degrees = (radians) => (radians * 180) / Math.PI + 0;
  const level = Math.hypot(m[0], m[4]);
  const x = level < 1e-8 ? 0 : Math.atan2(m[9], m[10]);
  const [cos, sin] = [Math.cos(x), Math.sin(x)];
  const z = Math.atan2(sin * m[2] - cos * m[1], cos * m[5] - sin * m[6]);
  return {
    translation_mm: [m[3], m[7], m[11]],
    angles_deg: [degrees(x), degrees(Math.atan2(-m[8], level)), degrees(z)],
  };
}

function draw(page, facts) {
  const work = document.getElementById("work");
  const box = work.getBoundingClientRect();
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d");
  const width = box.width + 2 * EDGE;
  const lines = layOut(context, linesOf(facts), width - 2 * EDGE);
  const top = box.height + 2 * EDGE;
  const height = top + lines.length * LINE + EDGE;
  const ratio = Math.max(window.devicePixelRatio || 1, FINENESS);
  [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
  context.scale(ratio, ratio);
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, width, height);
  context.save();
  context.translate(EDGE - box.x, EDGE - box.y);
  page.scene.drawNow(); // a picture of the graphics card is there only until the page goes on
  paint(context, work);
  context.restore();
  context.textBaseline = "middle";
  lines.forEach((line, row) => {
    for (const { text, x, font, colour } of line) {
      [context.font, context.fillStyle] = [font, colour];
      context.fillText(text, x, top + (row + 0.5) * LINE);
    }
  });
  return canvas;
}

// What is written beneath: [name, words] of each.
export function linesOf(facts) {
  const { frame, pose } = facts;
  const mm = (value) => (value === null ? "" : `${value.toFixed(1)} mm`);
  const three = (values, digits, unit) => `x ${values[0].toFixed(digits)}, y ${values[1].toFixed(digits)}, z ${values[2].toFixed(digits)} ${unit}`;
  return [
    ["verdict", [facts.word, facts.said].filter(Boolean).join(": ")],
    ["method", facts.method],
    ["expected error", mm(facts.expected_mm)],
    ["95 % below", mm(facts.bound_mm)],
    ["confidence", facts.confidence === null ? "" : facts.confidence.toFixed(2)],
    ["true error", mm(facts.error_mm)],
    ["hints", (facts.hints || []).join("; ")],
    ["calibrated on", facts.calibrated_on || ""],
    ["volume", facts.volume + (frame && !facts.in_this_volume && facts.image_to_volume ? " (the frame was sought in another)" : "")],
    ["frame", frame ? `${frame.name}${/\d$/.test(frame.name) ? "" : `, number ${frame.number}`}` : ""],
    ["time", frame && frame.time_s !== null ? momentOf(frame.time_s) : ""],
    ["source", facts.source],
    ["translation", pose ? three(pose.translation_mm, 2, "mm (frame to volume, LPS)") : ""],
    ["angles", pose ? three(pose.angles_deg, 2, "° (R = Rz Ry Rx)") : ""],
    ["notes", facts.notes.join("; ")],
    ["rulers", facts.rulers.map(({ words, on }) => `${words} (${on})`).join("; ")],
    ["taken", `${new Date(facts.taken).toLocaleString("sv")} by scopereg ${facts.version}, not for clinical use`],
  ].filter(([, words]) => words);
}

// Of a source: seconds from its beginning, or those of a clock.
export function momentOf(seconds) {
  if (seconds < CLOCK_S) return `${seconds.toFixed(3)} s`;
  return `${new Date(seconds * 1000).toLocaleString("sv")}.${String(Math.floor((seconds % 1) * 1000)).padStart(3, "0")}`;
}

// In columns where there is room, each value broken into lines where it is long.
function layOut(context, named, width) {
  const columns = width > 1100 ? 3 : width > 640 ? 2 : 1;
  const wide = width / columns - EDGE;
  const rows = named.flatMap(([name, words]) => broken(context, words, wide - LABEL).map((text, k) => [k ? "" : name, text]));
  const high = Math.ceil(rows.length / columns);
  return Array.from({ length: high }, (_, row) =>
    Array.from({ length: columns }, (_, column) => column).flatMap((column) => {
      const found = rows[column * high + row];
      const x = EDGE + (column * width) / columns;
      return found ? [
        { text: found[0], x, font: `12px ${FAMILY}`, colour: INKS.dim },
        { text: found[1], x: x + LABEL, font: `600 12.5px ${FAMILY}`, colour: INKS.ink },
      ] : [];
    }));
}

function broken(context, words, width) {
  context.font = `600 12.5px ${FAMILY}`;
  const lines = [];
  for (const word of words.split(" ")) {
    const longer = lines.length ? `${lines[lines.length - 1]} ${word}` : word;
    if (lines.length && context.measureText(longer).width <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}
