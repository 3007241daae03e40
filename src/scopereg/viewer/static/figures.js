// How the loop is doing, in small numbers; and what the server has to say.

export class Figures {
  constructor(root) {
    this.root = root;
    this.cells = {};
    for (const cell of root.querySelectorAll("[data-figure]")) this.cells[cell.dataset.figure] = cell;
  }

  show(update, state) {
    const counters = (update && update.counters) || (state && state.counters) || {};
    this.write("number", update ? numberOf(update, state) : "–");
    this.write("took", update && update.register_ms ? `${update.register_ms.toFixed(0)} ms` : "–");
    this.write("rate", decimal(update && update.frames_per_s, 1));
    this.write("p50", decimal(update && update.p50_ms, 0));
    this.write("p95", decimal(update && update.p95_ms, 0));
    this.write("dropped", update ? String(update.dropped ?? 0) : "–");
    const errors = faults(counters) + faults(withPrefix((state && state.counters) || {}, "viewer_"));
    this.write("errors", String(errors));
    this.cells.errors.classList.toggle("bad", errors > 0);
    const fault = (state && state.last_fault) || "";
    if (this.cells.errors.title !== fault) this.cells.errors.title = fault;
  }

  write(name, text) {
    const cell = this.cells[name];
    if (cell && cell.textContent !== text) cell.textContent = text;
  }
}

// Of frames that come, or of finished results among all.
function numberOf(update, state) {
  if (state && state.results) return `${update.result + 1} of ${state.results.length}`;
  return String(update.frame_number ?? update.number);
}

// All that went wrong, whoever counted it.
const FAULTS = /^(failed|lost|stalled|bad_\w+|\w+_errors)$/;

function faults(counters) {
  return Object.entries(counters).reduce((sum, [name, count]) => (FAULTS.test(name) ? sum + count : sum), 0);
}

function withPrefix(counters, prefix) {
  const own = Object.entries(counters).filter(([name]) => name.startsWith(prefix));
  return Object.fromEntries(own.map(([name, count]) => [name.slice(prefix.length), count]));
}

function decimal(value, digits) {
  return value === null || value === undefined ? "–" : value.toFixed(digits);
}

// Notices come below the bar and go by themselves; errors stay longer.
export function notify(list, level, text) {
  const note = document.createElement("li");
  note.className = level;
  note.textContent = text;
  list.append(note);
  while (list.children.length > 3) list.firstElementChild.remove();
  setTimeout(() => note.remove(), level === "error" ? 9000 : 3500);
}
