// Finished results that lie in the page itself: the same calls as those of a connection, without a server.

import { decodeUpdate } from "./updates.js";

export function embeddedData() {
  const element = document.getElementById("embedded");
  return element ? JSON.parse(element.textContent) : null;
}

export class Embedded {
  constructor(data, to) {
    this.data = data;
    this.to = to;
  }

  open() {
    this.to.status("open");
    this.to.state(this.data.state);
    this.show(0);
  }

  show(number) {
    const text = this.data.updates[number];
    if (text) this.to.update(decodeUpdate(bytes(text).buffer));
  }

  send(message) {
    if (message.do === "result") this.show(message.number);
    return true;
  }

  voxels() {
    return unpacked(this.data.voxels);
  }

  labels() {
    return unpacked(this.data.labels);
  }

  async path() {
    return this.data.path;
  }
}

async function unpacked(base64) {
  const stream = new Blob([bytes(base64)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function bytes(base64) {
  const text = atob(base64);
  const found = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) found[k] = text.charCodeAt(k);
  return found;
}
