// The connection to the server: comes back by itself, says how it stands.

import { decodeUpdate } from "./updates.js";

const FIRST_WAIT_MS = 300;
const LONGEST_WAIT_MS = 3000;

export class Link {
  // `to` has state(state), update(update), notice(level, text) and status(status) to be called.
  constructor(to) {
    this.to = to;
    this.wait = FIRST_WAIT_MS;
    this.socket = null;
    this.told = false; // that it needs another token
  }

  open() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    this.socket = new WebSocket(`${scheme}//${location.host}/ws`);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => {
      this.wait = FIRST_WAIT_MS;
      this.to.status("open");
    };
    this.socket.onmessage = (event) => this.take(event.data);
    this.socket.onclose = () => {
      this.to.status("lost");
      this.explain();
      setTimeout(() => this.open(), this.wait);
      this.wait = Math.min(2 * this.wait, LONGEST_WAIT_MS);
    };
  }

  // A server that was started anew has another token, and says so; the web socket alone does not tell.
  async explain() {
    const answer = await fetch("api/state", { cache: "no-store" }).catch(() => null);
    if (!answer || answer.status !== 401 || this.told) return;
    this.told = true;
    this.to.notice("error", "scopereg was started anew: open the link that it printed.");
  }

  // What cannot be understood is no reason to stand still: a new connection begins anew.
  take(data) {
    try {
      this.receive(data);
    } catch (error) {
      this.to.notice("error", `A message of the server was not understood: ${error.message}`);
      this.socket.close();
    }
  }

  receive(data) {
    if (typeof data !== "string") {
      this.to.update(decodeUpdate(data));
      return;
    }
    const message = JSON.parse(data);
    if (message.type === "state") this.to.state(message);
    else if (message.type === "notice") this.to.notice(message.level, message.text);
  }

  send(message) {
    const open = this.socket && this.socket.readyState === WebSocket.OPEN;
    if (open) this.socket.send(JSON.stringify(message));
    return open;
  }

  async voxels(info) {
    const answer = await fetch(`api/volume?generation=${info.generation}`, { cache: "no-store" });
    if (!answer.ok) throw new Error(await reason(answer));
    return new Uint8Array(await answer.arrayBuffer());
  }

  async labels(info) {
    const answer = await fetch(`api/labels?generation=${info.generation}`, { cache: "no-store" });
    if (!answer.ok) throw new Error(await reason(answer));
    return new Uint8Array(await answer.arrayBuffer());
  }

  async path() {
    const answer = await fetch("api/path", { cache: "no-store" });
    if (answer.status === 404) return null;
    if (!answer.ok) throw new Error(await reason(answer));
    return answer.json();
  }

  async upload(file) {
    const answer = await fetch(`api/volume?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file });
    if (!answer.ok) throw new Error(await reason(answer));
  }
}

// What went wrong and what helps, in the words of the server.
async function reason(answer) {
  try {
    const { error } = await answer.json();
    return [error.what, error.fix].filter(Boolean).join(": ");
  } catch {
    return `the server answered ${answer.status}`;
  }
}
