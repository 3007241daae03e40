// Starts the page; `scopereg` in the console is all of it.

import { Page } from "./page.js";

window.scopereg = new Page();
