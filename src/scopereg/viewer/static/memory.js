// What a person chose for the page itself, kept by the browser; where it keeps nothing the page works all the same.

const PREFIX = "scopereg.";

export function recall(name) {
  try {
    return localStorage.getItem(PREFIX + name);
  } catch {
    return null; // a page in a frame without rights, such as a notebook's
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(PREFIX + name, value);
  } catch {
    // It holds until the page is closed.
  }
}
