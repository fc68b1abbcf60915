// What <weir-meter> and <weir-pricing> share: reading JSON politely, formatting it exactly, building elements.
// Text from the network becomes text nodes and nothing else; there is no inline style and no evaluated text, so that
// both work under a strict Content-Security-Policy, Trusted Types included.

const timeLimit = 10_000; // ms that one reading may take
const longestWait = 600_000; // ms between tries while nothing answers
const leastRefresh = 10; // s

// Whole numbers past 2^53 are read from their digits where the browser shows them, and are BigInt then.
function exact(_, value, context) {
  const digits = typeof value === "number" && !Number.isSafeInteger(value) && context?.source;
  return digits && /^-?\d+$/.test(digits) ? BigInt(digits) : value;
}

// Browsers from 2023 on format decimal text digit by digit. Others go through a double, which 15 digits survive.
const formatsText = new Intl.NumberFormat("en").format("9007199254740993") === "9,007,199,254,740,993";

// Format writes numbers, amounts and instants in a locale.
class Format {
  constructor(locale) {
    try {
      new Intl.NumberFormat(locale);
      this.locale = locale;
    } catch {
      this.locale = undefined; // no language of ours: the browser's
    }
  }

  count(n) {
    return new Intl.NumberFormat(this.locale).format(n);
  }

  // money writes a decimal text such as "81.60" with all its digits; no arithmetic touches it.
  money(text, code) {
    const plain = `${text} ${String(code).toUpperCase()}`;
    const parts = /^-?(\d+)(?:\.(\d+))?$/.exec(text);
    if (!parts || (!formatsText && parts[1].length + (parts[2]?.length ?? 0) > 15)) return plain;
    try {
      const money = { style: "currency", currency: code };
      const usual = new Intl.NumberFormat(this.locale, money).resolvedOptions().maximumFractionDigits;
      const shown = parts[2]?.length ?? 0;
      if (shown > 20) return plain;
      const format = new Intl.NumberFormat(this.locale, { ...money, maximumFractionDigits: Math.max(usual, shown) });
      return format.format(formatsText ? text : Number(text));
    } catch {
      return plain;
    }
  }

  percent(whole) {
    return new Intl.NumberFormat(this.locale, { style: "unit", unit: "percent" }).format(whole);
  }

  // instant is in UTC, as on the usage page and on invoices.
  instant(text) {
    const at = new Date(text);
    if (Number.isNaN(at.getTime())) return String(text);
    return new Intl.DateTimeFormat(this.locale, {
      day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", timeZone: "UTC", timeZoneName: "short",
    }).format(at);
  }
}

// make builds an element. Children are elements and texts; null is left out.
function make(name, attributes, ...children) {
  const svg = name === "svg" || name === "rect";
  const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) e.setAttribute(key, value);
  e.append(...children.filter((c) => c !== null && c !== undefined && c !== ""));
  return e;
}

// webLink is a link where the address is one of the web, and null elsewhere.
function webLink(address, text, key) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  if (url.protocol !== "https:" && url.protocol !== "http:") return null;
  return make("a", { href: url.href, class: "action", part: "action", "data-key": key }, text);
}

// sheetOf makes a style sheet of the page's own colours, then Weir's. A host sets the custom properties of the :host
// block; light or dark follows the page's color-scheme.
function sheetOf(rules) {
  const colours = {
    track: ["#dfe7eb", "#2a3b44"], flow: ["#0b7a8f", "#3fb8cc"], near: ["#d69a0b", "#f0c75e"], over: ["#b8560b", "#f2a04a"],
    full: ["#b3261e", "#ff8a80"], line: ["#d3dde2", "#31434c"], link: ["#0b6a7d", "#6fd0e0"],
  };
  const block = (value) => Object.entries(colours).map(([name, pair]) => `--${name}: var(--weir-${name}, ${value(pair)});`).join(" ");
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`
    :host { display: block; font-variant-numeric: tabular-nums; line-height: 1.45; ${block(([light]) => light)} }
    @supports (color: light-dark(#000, #fff)) { :host { ${block(([light, dark]) => `light-dark(${light}, ${dark})`)} } }
    :host([hidden]) { display: none; }
    .sr { position: absolute; width: 1px; height: 1px; margin: -1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
    .note { margin: 0; font-size: 0.875em; }
    .note:empty { display: none; }
    a { color: var(--link); text-underline-offset: 0.15em; }
    :focus-visible { outline: 3px solid var(--link); outline-offset: 2px; border-radius: 3px; }
    ${rules}`);
  return sheet;
}

// WeirElement reads the JSON at its attribute src and draws it. What extends it gives it texts and draw(data).
class WeirElement extends HTMLElement {
  static observedAttributes = ["src", "refresh", "locale", "texts", "feature", "current"];

  #root = this.attachShadow({ mode: "open" });
  #content = make("div", { part: "content" });
  #note = make("p", { class: "note", part: "note", role: "status" });
  #data = null;
  #text = "";
  #failures = 0;
  #due = 0; // the earliest time of the next reading; Infinity: none
  #spared = 0; // no reading before it
  #timer = 0;
  #reading = null;
  #onVisible = () => this.#plan();

  constructor() {
    super();
    this.#root.adoptedStyleSheets = [this.constructor.sheet];
    this.#root.append(this.#content, this.#note);
  }

  connectedCallback() {
    document.addEventListener("visibilitychange", this.#onVisible);
    this.#begin();
  }

  disconnectedCallback() {
    document.removeEventListener("visibilitychange", this.#onVisible);
    clearTimeout(this.#timer);
    this.#reading?.abort();
    this.#reading = null;
  }

  attributeChangedCallback(name, was, is) {
    if (was === is || !this.isConnected) return;
    if (name === "src") this.#begin();
    else if (name === "refresh") this.#after(0);
    else this.#show();
  }

  get src() {
    return this.getAttribute("src") ?? "";
  }

  set src(address) {
    this.setAttribute("src", address);
  }

  // locale is the attribute's, else the language of the element's surroundings, else the browser's.
  get locale() {
    return this.getAttribute("locale") || this.closest("[lang]")?.lang || undefined;
  }

  // say is a text in the host's words or ours, with its {names} filled in.
  say(name, values = {}) {
    let own = {};
    try {
      own = JSON.parse(this.getAttribute("texts") || "{}") ?? {};
    } catch {
      console.error(`${this.localName}: the attribute texts is no JSON`);
    }
    const text = typeof own[name] === "string" ? own[name] : this.constructor.texts[name];
    return text.replace(/\{(\w+)\}/g, (all, key) => (Object.hasOwn(values, key) ? values[key] : all));
  }

  #begin() {
    this.#data = null;
    this.#text = "";
    this.#failures = 0;
    this.#content.replaceChildren();
    let url = null;
    try {
      url = new URL(this.getAttribute("src"), document.baseURI);
    } catch { /* told below */ }
    if (!this.getAttribute("src") || !/^https?:$/.test(url?.protocol)) {
      console.error(`${this.localName}: the attribute src must be the address of Weir's JSON`);
      this.#due = Infinity;
      this.#tell("unavailable");
      return;
    }
    this.#tell("loading");
    this.#after(Math.max(0, this.#spared - Date.now()));
  }

  // after sets the time of the next reading, in ms from now.
  #after(wait) {
    this.#due = Date.now() + wait;
    this.#plan();
  }

  // plan waits for the next reading, while somebody can see the page.
  #plan() {
    clearTimeout(this.#timer);
    if (this.#due === Infinity || document.visibilityState === "hidden" || !this.isConnected) return;
    this.#timer = setTimeout(() => this.#read(), Math.max(0, this.#due - Date.now()));
  }

  // pause is the wait after a reading that went well, in ms, spread so that a thousand pages don't ask at once.
  #pause() {
    const asked = this.hasAttribute("refresh") ? Number(this.getAttribute("refresh")) : this.constructor.refresh;
    if (!(asked > 0)) return Infinity;
    return Math.max(asked, leastRefresh) * 1000 * (0.9 + 0.2 * Math.random());
  }

  async #read() {
    this.#reading?.abort();
    const reading = new AbortController();
    this.#reading = reading;
    this.#due = Infinity; // while it runs
    const limit = setTimeout(() => reading.abort(), timeLimit);
    let status = 0, text = "", asked = 0;
    try {
      // The address is a secret: no cookie and no referrer goes with it, no redirect takes it elsewhere.
      const answer = await fetch(this.getAttribute("src"), {
        signal: reading.signal, credentials: "omit", referrerPolicy: "no-referrer", redirect: "error", cache: this.constructor.cache,
      });
      status = answer.status;
      asked = Number(answer.headers.get("Retry-After")) || 0;
      if (answer.ok) text = await answer.text();
    } catch {
      status = 0;
    }
    clearTimeout(limit);
    if (this.#reading !== reading) return; // the element has left, or reads something else
    this.#reading = null;
    this.#took(status, text, asked);
  }

  #took(status, text, asked) {
    let data = null;
    try {
      if (text) data = JSON.parse(text, exact);
    } catch { /* told below */ }
    if (this.constructor.fits(data) && this.#takes(data, text)) {
      this.#failures = 0;
      this.#tell("");
      this.#after(this.#pause());
      return;
    }
    if (status === 401 || status === 403 || status === 404) { // waiting mends none of them
      this.#data = null;
      this.#content.replaceChildren();
      this.#tell("expired");
      this.#spared = Date.now() + 5000; // a host that renews a link in vain does not ask in a loop
      this.dispatchEvent(new CustomEvent("weir-expired", { bubbles: true, composed: true }));
      return;
    }
    this.#failures++;
    this.#tell(this.#data ? "stale" : "unavailable");
    const wait = Math.min(longestWait, 5000 * 2 ** Math.min(this.#failures - 1, 10));
    this.#after(Math.max(wait, Math.min(longestWait, asked * 1000)) * (1 + 0.2 * Math.random()));
  }

  // takes draws new data, and reports whether it could: numbers of another shape count as none.
  #takes(data, text) {
    const before = this.#data;
    this.#data = data;
    try {
      if (text !== this.#text) this.#show();
    } catch (error) {
      console.error(`${this.localName}: the JSON is not Weir's`, error);
      this.#data = before;
      return false;
    }
    this.#text = text;
    return true;
  }

  #tell(name) {
    const text = name && this.say(name);
    if (this.#note.textContent !== text) this.#note.textContent = text;
    this.setAttribute("state", name || "ready");
  }

  // show draws what was read; who has the keyboard in it keeps his place.
  #show() {
    if (!this.#data) return;
    const key = this.#root.activeElement?.getAttribute("data-key");
    this.#content.replaceChildren(...this.draw(this.#data, new Format(this.locale)));
    if (key) [...this.#content.querySelectorAll("[data-key]")].find((e) => e.getAttribute("data-key") === key)?.focus();
  }
}
