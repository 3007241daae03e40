// Light or dark: as the system has it, or as chosen in the panel; the colours of it, for what is drawn on canvases.

import { recall, remember } from "./memory.js";

const CHOICES = ["system", "light", "dark"];
const LIGHT = matchMedia("(prefers-color-scheme: light)");
const MEDIA = { system: "(prefers-color-scheme: light)", light: "all", dark: "not all" }; // of the light style
const NAMES = [
  "ink", "soft", "dim", "edge", "rule", "band", "blue", "green", "amber", "red", "none", "axial", "coronal", "sagittal",
  "space", "box", "halo",
];

export const INKS = {}; // by the names of style.css; what stands on the page, not over its pictures

export class Theme {
  // `changed` is called when the colours are others.
  constructor(changed) {
    this.changed = changed;
    this.buttons = CHOICES.map((choice) => document.getElementById(`theme-${choice}`));
    this.buttons.forEach((button, k) => button.addEventListener("click", () => this.choose(CHOICES[k])));
    LIGHT.addEventListener("change", () => this.take());
    this.sheet = document.getElementById("light-theme");
    this.sheet.addEventListener("load", () => this.take()); // a browser may fetch it when it is first needed
    this.use(recall("theme"));
  }

  get name() {
    return this.choice === "system" ? (LIGHT.matches ? "light" : "dark") : this.choice;
  }

  choose(choice) {
    remember("theme", choice);
    this.use(choice);
  }

  use(choice) {
    this.choice = CHOICES.includes(choice) ? choice : "system";
    this.sheet.media = MEDIA[this.choice];
    this.buttons.forEach((button, k) => button.setAttribute("aria-pressed", String(CHOICES[k] === this.choice)));
    this.take();
  }

  take() {
    document.documentElement.dataset.theme = this.name;
    const style = getComputedStyle(document.documentElement);
    for (const name of NAMES) INKS[name] = style.getPropertyValue(`--${name}`).trim();
    this.changed();
  }
}
