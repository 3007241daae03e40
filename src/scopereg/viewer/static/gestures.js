// Mouse, pen and fingers on a panel, as drags, pinches, wheels and double taps.

const DOUBLE_MS = 350;
const STILL_PX = 8; // a finger that moved less has tapped

// `on` may have down({x, y, kind, pointer}), drag({dx, dy, x, y, kind}), up({x, y}), cancel() where a second finger
// comes, pinch({factor, dx, dy, x, y}), double() and wheel({delta, x, y, zoom}). A drag is of the kind "move" (left
// button, finger, pen), "pan" (middle button, or with shift) or "window" (right button); `pointer` is touch or mouse.
export function watch(element, on) {
  const hand = new Hand(element, on);
  element.addEventListener("pointerdown", (event) => hand.down(event));
  element.addEventListener("pointermove", (event) => hand.move(event));
  for (const end of ["pointerup", "pointercancel"]) element.addEventListener(end, (event) => hand.up(event));
  element.addEventListener("contextmenu", (event) => event.preventDefault());
  element.addEventListener("wheel", (event) => {
    event.preventDefault();
    const step = event.deltaMode === 1 ? 33 : 1; // lines or pixels
    if (on.wheel) on.wheel({ delta: event.deltaY * step, ...place(element, event), zoom: event.ctrlKey });
  }, { passive: false });
}

// What is on the panel: one pointer that drags or taps, or two fingers that pinch.
class Hand {
  constructor(element, on) {
    [this.element, this.on] = [element, on];
    this.pointers = new Map();
    [this.kind, this.travelled, this.lastTap] = ["move", 0, -Infinity];
  }

  down(event) {
    const here = place(this.element, event);
    this.element.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, here);
    this.kind = event.button === 2 ? "window" : event.button === 1 || event.shiftKey ? "pan" : "move";
    this.travelled = 0;
    const pointer = event.pointerType === "touch" ? "touch" : "mouse";
    if (this.on.down && this.pointers.size === 1) this.on.down({ ...here, kind: this.kind, pointer });
    if (this.on.cancel && this.pointers.size === 2) this.on.cancel();
  }

  move(event) {
    const { pointers, on } = this;
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const now = place(this.element, event);
    const spread = pointers.size === 2 ? apart(pointers) : 0;
    pointers.set(event.pointerId, now);
    const [dx, dy] = [now.x - before.x, now.y - before.y];
    this.travelled += Math.hypot(dx, dy);
    if (pointers.size === 2 && on.pinch) {
      on.pinch({ factor: spread > 0 ? apart(pointers) / spread : 1, dx: dx / 2, dy: dy / 2, ...middle(pointers) });
    } else if (pointers.size === 1 && on.drag) {
      on.drag({ dx, dy, ...now, kind: this.kind });
    }
  }

  up(event) {
    const known = this.pointers.delete(event.pointerId);
    if (known && this.on.up && !this.pointers.size) this.on.up(place(this.element, event));
    const tapped = known && event.type === "pointerup" && event.button <= 0;
    if (!tapped || this.travelled > STILL_PX) return;
    const isDouble = event.timeStamp - this.lastTap < DOUBLE_MS;
    this.lastTap = isDouble ? -Infinity : event.timeStamp;
    if (isDouble && this.on.double) this.on.double();
  }
}

function place(element, event) {
  const box = element.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

function apart(pointers) {
  const [a, b] = pointers.values();
  return Math.hypot(a.x - b.x, a.y - b.y);
}

function middle(pointers) {
  const [a, b] = pointers.values();
  return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
}
