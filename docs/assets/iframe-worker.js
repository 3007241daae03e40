// Browsers start no worker for a page that was opened as a file. There the search runs in a hidden frame instead, which
// loads its scripts as any page does and passes messages as a worker would.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.frame = frame;
      this.inner = frame.contentWindow;
      window.addEventListener("message", (event) => {
        if (event.source !== this.inner) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      });
      const page = frame.contentDocument;
      page.open();
      page.write(
        "<script>postMessage = (data) => parent.postMessage(data, '*');" +
          "importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done, fail) => {" +
          "const part = document.createElement('script'); part.src = url; part.onload = done; part.onerror = fail;" +
          "document.body.appendChild(part); })), Promise.resolve());" +
          "</script><script src='" + new URL(url, location.href) + "'></script>",
      );
      this.ready = new Promise((done) => { this.inner.addEventListener("load", done); });
      page.close();
    }

    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
