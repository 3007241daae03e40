// Words in a PNG: a chunk tEXt behind its header (PNG, third edition, 11.3.3.2).

const HEADER_END = 33; // signature and IHDR

// `text` is written with \u where it is not plain, as JSON may be.
export function withText(png, keyword, text) {
  const plain = text.replace(/[^\x20-\x7e]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`);
  const content = new TextEncoder().encode(`tEXt${keyword}\0${plain}`);
  const chunk = new Uint8Array(content.length + 8);
  const view = new DataView(chunk.buffer);
  view.setUint32(0, content.length - 4);
  chunk.set(content, 4);
  view.setUint32(content.length + 4, crc32(content));
  const found = new Uint8Array(png.length + chunk.length);
  found.set(png.subarray(0, HEADER_END));
  found.set(chunk, HEADER_END);
  found.set(png.subarray(HEADER_END), HEADER_END + chunk.length);
  return found;
}

function crc32(bytes) {
  let crc = -1;
  for (const byte of bytes) {
    crc ^= byte;
    for (let k = 0; k < 8; k++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return ~crc >>> 0;
}
