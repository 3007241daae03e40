// Tables from grey values to colours of the screen, as 32-bit numbers in the order that ImageData has them.

// Over pictures, which are dark in every theme; what stands on the page itself has the colours of theme.js.
export const LIGHTS = { green: "#43c384", amber: "#f0b24a", red: "#ff6b5e", none: "#8b95a1" };
export const PLANE_COLOURS = { axial: "#6cb6ff", coronal: "#c4a7ff", sagittal: "#5fd3d3" };

const LITTLE = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;
const HEAT = [[0, 0, 0, 0], [70, 15, 110, 90], [190, 55, 85, 170], [250, 140, 20, 215], [255, 240, 150, 240]];

export function packed(r, g, b, a = 255) {
  return (LITTLE ? (a << 24) | (b << 16) | (g << 8) | r : (r << 24) | (g << 16) | (b << 8) | a) >>> 0;
}

// Grey values for a window of brightness: black at `low`, white at `high`.
export function greyTable(low, high, table = new Uint32Array(256)) {
  const width = Math.max(high - low, 1);
  for (let value = 0; value < 256; value++) {
    const grey = Math.min(Math.max(Math.round((255 * (value - low)) / width), 0), 255);
    table[value] = packed(grey, grey, grey);
  }
  return table;
}

// Red, green and blue from 0 to 1, of a colour such as #c4a7ff or #fff.
export function parts(colour) {
  const digits = colour.length < 7 ? [...colour.slice(1)].map((digit) => digit + digit).join("") : colour.slice(1);
  return [0, 2, 4].map((at) => parseInt(digits.slice(at, at + 2), 16) / 255);
}

// From nothing over violet and orange to yellow, ever less transparent.
export function heatTable() {
  const table = new Uint32Array(256);
  for (let value = 0; value < 256; value++) {
    const place = (value / 255) * (HEAT.length - 1);
    const at = Math.min(Math.floor(place), HEAT.length - 2);
    const mixed = HEAT[at].map((from, k) => Math.round(from + (place - at) * (HEAT[at + 1][k] - from)));
    table[value] = packed(...mixed);
  }
  return table;
}

// Differences from -127 to 127: black where both agree, orange where the frame is brighter, else blue.
export function differenceTable() {
  const table = new Uint32Array(256);
  for (let value = 0; value < 256; value++) {
    const gap = Math.max(-1, (value - 128) / 127);
    table[value] = gap >= 0
      ? packed(Math.round(255 * gap), Math.round(158 * gap), Math.round(51 * gap))
      : packed(Math.round(-64 * gap), Math.round(-153 * gap), Math.round(-255 * gap));
  }
  return table;
}
