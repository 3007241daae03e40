// How large a pixel is, where nobody but the person at the page knows: asked once, answered in a dialog.

export class PixelSize {
  constructor(page) {
    this.page = page;
    this.asked = 0; // number of the last question that the dialog opened for
    const find = (id) => document.getElementById(id);
    [this.button, this.dialog, this.field] = ["pixel-size", "pixel-dialog", "pixel-mm"].map(find);
    [this.why, this.choices, this.keep] = ["pixel-why", "pixel-choices", "pixel-keep"].map(find);
    this.button.addEventListener("click", () => this.open());
    find("pixel-form").addEventListener("submit", (event) => this.answer(event));
    this.keep.addEventListener("click", () => {
      page.send({ do: "keep_pixel_size", number: this.number });
      this.dialog.close();
    });
  }

  get question() {
    const { state } = this.page.model;
    return (state && state.asks) || null;
  }

  // Of a new state: a question opens the dialog once, and one that nobody asks any more closes it.
  show(state) {
    this.button.hidden = !this.page.can("pixel_size");
    const { asks } = state;
    this.button.classList.toggle("asks", Boolean(asks));
    const open = document.querySelector("dialog[open]");
    if (open === this.dialog && this.number && (!asks || asks.number !== this.number)) this.dialog.close();
    if (!asks || asks.number === this.asked || document.querySelector("dialog[open]")) return;
    this.asked = asks.number;
    this.open();
  }

  open() {
    const { question } = this;
    this.number = question ? question.number : null;
    this.why.textContent = question ? `${capital(question.why)}.` : "Of the pictures that come now.";
    this.field.value = (question && question.suggestion) || "";
    this.keep.hidden = !(question && question.told);
    if (!this.keep.hidden) this.keep.textContent = `Keep ${question.told} mm`;
    this.choices.replaceChildren(...((question && question.choices) || []).map((choice) => this.choice(choice)));
    this.dialog.showModal();
    this.field.select();
  }

  // A size that was told before.
  choice(words) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = `${words} mm, told before`;
    button.addEventListener("click", () => {
      this.field.value = words;
    });
    return button;
  }

  answer(event) {
    const words = this.field.value.trim();
    if (!words) {
      event.preventDefault();
      return;
    }
    this.page.send({ do: "pixel_size", mm: words, ...(this.number ? { number: this.number } : {}) });
  }
}

function capital(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
