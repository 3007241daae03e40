// The panel of adjustments: beside the views on a wide screen, folded at first elsewhere, a drawer from below on a phone.

import { recall, remember } from "./memory.js";

const WIDE = "(min-width: 1280px)"; // where it takes no room that is needed
const DRAWER = "(max-width: 600px)";

export class Panel {
  constructor() {
    this.root = document.getElementById("panel");
    this.button = document.getElementById("look");
    this.button.addEventListener("click", () => this.toggle());
    document.getElementById("panel-close").addEventListener("click", () => this.fold(true));
    this.wide = matchMedia(WIDE);
    this.wide.addEventListener("change", () => this.settle());
    this.settle();
  }

  get open() {
    return document.body.dataset.panel === "open";
  }

  // As the screen has room, and on a wide one as it was left.
  settle() {
    this.fold(!this.wide.matches || recall("panel") === "folded");
  }

  toggle() {
    const folded = this.open;
    this.fold(folded);
    if (this.wide.matches) remember("panel", folded ? "folded" : "open");
    if (folded || !matchMedia(DRAWER).matches) return;
    this.root.querySelector("summary").focus({ preventScroll: true });
    document.getElementById("views").scrollIntoView(); // what is adjusted stays in sight above the drawer
  }

  fold(folded) {
    if (folded && this.root.contains(document.activeElement)) this.button.focus();
    document.body.dataset.panel = folded ? "folded" : "open";
    this.button.setAttribute("aria-expanded", String(!folded));
    this.button.setAttribute("aria-pressed", String(!folded));
  }
}
