// What drawing costs, part by part; read by tests and by whoever opens the console: scopereg.timing.summary().

const KEPT = 400;

export class Timing {
  constructor() {
    this.rows = [];
    this.shown = 0; // updates that were drawn
  }

  begin() {
    this.last = this.first = performance.now();
    this.row = {};
  }

  mark(part) {
    const now = performance.now();
    this.row[part] = now - this.last;
    this.last = now;
  }

  end(update) {
    this.row.total = this.last - this.first;
    this.row.waited = this.first - update.arrived;
    this.row.at = this.last;
    this.shown++;
    this.rows.push(this.row);
    if (this.rows.length > KEPT) this.rows.shift();
  }

  // Medians and 95th percentiles in ms, and updates per second.
  summary() {
    const found = {};
    for (const part of ["texts", "comparison", "planes", "trace", "scene", "total", "waited"]) {
      const values = this.rows.map((row) => row[part]).sort((a, b) => a - b);
      found[part] = { p50: values[values.length >> 1], p95: values[Math.floor(values.length * 0.95)] };
    }
    const span = this.rows.length > 1 ? this.rows[this.rows.length - 1].at - this.rows[0].at : 0;
    found.perSecond = span ? (1000 * (this.rows.length - 1)) / span : 0;
    return found;
  }
}
