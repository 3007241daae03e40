// What lies over the volume, in the panel of adjustments: a switch for each label, and how strongly all are drawn.

export class Overlays {
  constructor(page) {
    this.page = page;
    this.byId = (id) => document.getElementById(id);
    this.byId("overlaid").addEventListener("click", () => page.toggle("overlaid"));
    this.byId("label-opacity").addEventListener("input", (event) => {
      this.labels.useOpacity(event.target.value / 100);
      page.changed();
    });
  }

  get labels() {
    return this.page.model.volume && this.page.model.volume.labels;
  }

  // Another volume: other overlays, or none.
  useVolume() {
    const { labels } = this;
    this.byId("part-overlays").hidden = !labels;
    if (!labels) return;
    this.byId("labels-file").textContent = labels.file;
    this.byId("label-opacity").value = Math.round(100 * labels.opacity);
    this.byId("label-list").replaceChildren(...labels.entries.map((entry, number) => this.labelRow(entry, number)));
  }

  labelRow(entry, number) {
    const row = document.createElement("label");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = true;
    box.addEventListener("change", () => {
      this.labels.switch(number, box.checked);
      this.page.changed();
    });
    const patch = document.createElement("i");
    patch.style.background = entry.colour;
    const name = document.createElement("span");
    name.textContent = entry.voxels ? entry.name : `${entry.name} (not on this grid)`;
    row.append(box, patch, name);
    return row;
  }
}
