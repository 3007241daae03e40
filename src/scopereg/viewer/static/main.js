// Starts the page; `scopereg` in the console is all of it.

import { Page } from "./page.js";

// The token of the link is in a cookie by now: nobody shall read it from the address, or keep it with a bookmark.
const address = new URL(location.href);
if (address.searchParams.has("token")) {
  address.searchParams.delete("token");
  history.replaceState(null, "", address);
}
window.scopereg = new Page();
