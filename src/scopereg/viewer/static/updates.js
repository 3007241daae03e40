// Messages of the server: 4 bytes with the length of the header, the header as JSON, the frame, the evidence.

import { multiply } from "./matrix.js";

const TEXT = new TextDecoder();

export function decodeUpdate(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(TEXT.decode(new Uint8Array(buffer, 4, length)));
  const [rows, columns] = header.frame ? header.frame.shape : [0, 0];
  const pixels = new Uint8Array(buffer, 4 + length, rows * columns);
  let evidence = null;
  if (header.evidence) {
    const [high, wide] = header.evidence.shape;
    evidence = { rows: high, columns: wide, values: new Uint8Array(buffer, 4 + length + rows * columns, high * wide) };
  }
  return { ...header, rows, columns, pixels, evidence, pixelToWorld: pixelToWorld(header), arrived: performance.now() };
}

// Pixels (column, row, 0) of the frame to LPS mm of the volume; null where the frame was not found.
function pixelToWorld(header) {
  return header.image_to_volume && header.frame ? multiply(header.image_to_volume, header.frame.pixel_to_image) : null;
}

// The corners of the frame in turn, as pixels: its border is half a pixel outside of their centres.
export function corners({ columns, rows }) {
  const [right, bottom] = [columns - 0.5, rows - 0.5];
  return [[-0.5, -0.5, 0], [right, -0.5, 0], [right, bottom, 0], [-0.5, bottom, 0]];
}
