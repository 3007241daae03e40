// Finished results one after the other: a line to drag along, played in their own time where they have times.

import { lineContext } from "./picture.js";
import { INKS } from "./theme.js";

const PER_SECOND = 10; // results without times
const TICK_MS = 20;
const LATE_MS = 3000; // after which an answer is not waited for any more
const THUMB_PX = 10; // half of the handle of the line
const HEIGHTS = { green: 3, amber: 5, red: 7, none: 3 }; // of the strip, for those who see no colours

export class Player {
  constructor(page) {
    this.page = page;
    this.root = document.getElementById("player");
    this.line = document.getElementById("player-line");
    this.strip = document.getElementById("player-strip");
    [this.now, this.all] = ["player-now", "player-all"].map((id) => document.getElementById(id));
    this.button = document.getElementById("play");
    this.speed = document.getElementById("player-speed");
    this.current = 0;
    this.asked = null; // {number, since}: what the server was asked for and has not answered
    this.wanted = null; // what comes after it
    this.button.addEventListener("click", () => this.toggle());
    this.line.addEventListener("input", () => {
      this.stop();
      this.seek(Number(this.line.value));
    });
    this.speed.addEventListener("change", () => this.playing && this.begin());
    new ResizeObserver(() => this.draw()).observe(this.strip);
  }

  get count() {
    const { state } = this.page.model;
    return state && state.results ? state.results.length : 0;
  }

  get times() {
    const { path } = this.page.model;
    return path && path.times ? path.times : null;
  }

  get playing() {
    return Boolean(this.timer);
  }

  // Other results, or their times have come.
  show() {
    document.body.dataset.player = this.count > 1 ? "on" : "off";
    this.line.max = String(Math.max(this.count - 1, 1));
    this.write();
  }

  // What has come: one that was asked for, or another page's choice.
  follow(number) {
    this.current = number;
    this.asked = null;
    if (this.wanted !== null && this.wanted !== number) this.seek(this.wanted);
    else this.wanted = null;
    if (!this.asked) this.line.value = String(number);
    this.write();
  }

  // One question at a time: while it is not answered the last wish counts.
  seek(number) {
    if (!(number >= 0 && number < this.count)) return;
    this.wanted = number;
    const waits = this.asked && performance.now() - this.asked.since < LATE_MS;
    if (waits || (number === this.current && !this.asked)) return;
    this.asked = { number, since: performance.now() };
    this.page.send({ do: "result", number });
  }

  toggle() {
    if (this.playing) this.stop();
    else this.begin();
  }

  // From where it is, from the start at its end.
  begin() {
    if (this.count < 2) return;
    clearInterval(this.timer);
    if (this.current >= this.count - 1) this.seek(0);
    const from = this.wanted ?? this.current;
    this.from = { s: this.timeOf(from), at: performance.now(), speed: Number(this.speed.value) };
    this.timer = setInterval(() => this.tick(), TICK_MS);
    this.write();
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.write();
  }

  // The last result whose time has come: on a slow machine some are left out, and none comes late.
  tick() {
    const now_s = this.from.s + ((performance.now() - this.from.at) / 1000) * this.from.speed;
    let number = this.current;
    while (number < this.count - 1 && this.timeOf(number + 1) <= now_s) number++;
    if (number !== this.current) this.seek(number);
    if (this.current === this.count - 1 && !this.asked) this.stop();
  }

  timeOf(number) {
    return this.times ? this.times[number] : number / PER_SECOND;
  }

  write() {
    const { times, current, count } = this;
    const place = `${current + 1} of ${count}`;
    this.now.textContent = times ? `${times[current].toFixed(2)} s` : String(current + 1);
    this.all.textContent = times ? `of ${times[count - 1].toFixed(2)} s` : `of ${count}`;
    this.line.setAttribute("aria-valuetext", times ? `${place}, ${times[current].toFixed(2)} s` : place);
    this.button.setAttribute("aria-pressed", String(this.playing));
    const label = this.playing ? "Pause" : "Play";
    if (this.button.getAttribute("aria-label") !== label) {
      this.button.setAttribute("aria-label", label);
      this.button.title = `${label} (space)`;
    }
  }

  // The light of each result, under the line; from the middle of its handle at one end to that at the other.
  draw() {
    const { context, width, height } = lineContext(this.strip);
    const { state } = this.page.model;
    if (!this.count || width < 40) return;
    const step = (width - 2 * THUMB_PX) / Math.max(this.count - 1, 1);
    state.results.forEach(({ light }, k) => {
      const high = HEIGHTS[light] || HEIGHTS.none;
      context.fillStyle = INKS[light] || INKS.none;
      context.fillRect(THUMB_PX + (k - 0.5) * step - 0.5, height - high, Math.max(step, 1) + 1, high); // without gaps
    });
    context.fillStyle = INKS.blue;
    for (const { result } of this.page.notes.all) context.fillRect(THUMB_PX + result * step - 1.5, 0, 3, height);
  }
}
