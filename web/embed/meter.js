// <weir-meter>: how much of a quota is used.

class WeirMeter extends WeirElement {
  static refresh = 60;
  static cache = "no-store";
  static fits = (data) => Array.isArray(data?.features);
  static texts = {
    loading: "Loading your usage…",
    expired: "Your usage can't be shown any more: reload this page.",
    unavailable: "Your usage can't be read now. Trying again…",
    stale: "These numbers may be old: newer ones can't be read now. Trying again…",
    none: "There is nothing to show.",
    of: "{used} of {included}",
    unlimited: "{used}, unlimited",
    left: "{remaining} left",
    resets: "Resets {at}",
    over: "Over",
    full: "Limit reached",
    overage: "{overage} over",
    overageCost: "{overage} over: {amount} so far",
    upgrade: "Upgrade",
  };
  static sheet = sheetOf(`
    .meter + .meter { margin-top: 1.1em; }
    .head { display: flex; flex-wrap: wrap; gap: 0 1em; justify-content: space-between; margin-bottom: 0.3em; }
    .name { font-weight: 600; overflow-wrap: anywhere; }
    svg { display: block; width: 100%; height: var(--weir-bar-height, 0.6em); border-radius: var(--weir-radius, 0.3em); }
    .track { fill: var(--track); }
    .fill { fill: var(--flow); }
    .near .fill { fill: var(--near); }
    .full .fill { fill: var(--full); }
    .beyond { fill: var(--over); }
    .full .beyond { fill: var(--full); }
    .numbers { display: flex; flex-wrap: wrap; gap: 0 1em; margin: 0.3em 0 0; font-size: 0.875em; }
    .more { margin-left: auto; }
    @media (max-width: 480px) { .more { margin-left: 0; } }
    @media (forced-colors: active) {
      svg { border: 1px solid CanvasText; }
      .track { fill: Canvas; }
      .fill, .beyond { fill: Highlight; }
    }`);

  #levels = new Map();

  draw(data, format) {
    const wanted = this.getAttribute("feature");
    const features = data.features.filter((f) => f && (wanted === null || f.feature === wanted));
    if (features.length === 0) return [make("p", { class: "note" }, this.say("none"))];
    const news = features.filter((f) => this.#levels.has(f.feature) && this.#levels.get(f.feature) !== f.status);
    for (const f of features) this.#levels.set(f.feature, f.status);
    const drawn = features.map((f) => this.#meter(f, data, format));
    // A new level is told once; numbers that move are not.
    drawn.push(make("p", { class: "sr", role: "status" }, news.map((f) => `${f.name}: ${this.#level(f, format)}`).join(". ")));
    return drawn;
  }

  #meter(f, data, format) {
    const level = ["near", "over", "full"].includes(f.status) ? f.status : "ok";
    const bounded = f.included !== null && f.included !== undefined;
    const used = format.count(f.used);
    const standing = bounded ? this.say("of", { used, included: format.count(f.included) }) : this.say("unlimited", { used });
    return make("div", { class: `meter ${level}`, part: `meter ${level}` },
      make("div", { class: "head" },
        make("span", { class: "name", part: "name" }, String(f.name)),
        bounded ? make("span", { class: "level", part: "level" }, this.#level(f, format)) : null),
      bounded ? bar(f, standing) : null,
      make("p", { class: "numbers", part: "numbers" },
        make("span", {}, standing),
        bounded && f.remaining > 0 ? make("span", {}, this.say("left", { remaining: format.count(f.remaining) })) : null,
        f.overage > 0 ? make("span", { class: "overage" }, this.#overage(f, format)) : null,
        f.resets_at ? make("span", { class: "more" }, this.say("resets", { at: format.instant(f.resets_at) })) : null),
      level === "near" || level === "full" ? webLink(data.upgrade_url, this.say("upgrade"), `upgrade ${f.feature}`) : null);
  }

  #level(f, format) {
    if (f.status === "over" || f.status === "full") return this.say(f.status);
    return format.percent(share(f.used, f.included, 100));
  }

  #overage(f, format) {
    const overage = format.count(f.overage);
    const cost = f.overage_amount;
    return cost ? this.say("overageCost", { overage, amount: format.money(cost.amount, cost.currency) }) : this.say("overage", { overage });
  }
}

// share is part of whole in so many steps, cut and not rounded; both are whole numbers.
function share(part, whole, steps) {
  if (!(whole > 0)) return part > 0 ? steps : 0;
  return Number((BigInt(part) * BigInt(steps)) / BigInt(whole));
}

// bar is the meter itself. Past the included units it shows them and, beyond, what came on top.
function bar(f, standing) {
  const over = f.used > f.included;
  const filled = over ? share(f.included, f.used, 1000) : share(f.used, f.included, 1000);
  return make("svg", {
    role: "meter", "aria-label": String(f.name), "aria-valuemin": "0", "aria-valuemax": String(f.included),
    "aria-valuenow": String(over ? f.included : f.used), "aria-valuetext": standing, part: "bar",
  },
  make("rect", { class: "track", width: "100%", height: "100%" }),
  make("rect", { class: "fill", width: `${filled / 10}%`, height: "100%" }),
  over ? make("rect", { class: "beyond", x: `${filled / 10}%`, width: `${(1000 - filled) / 10}%`, height: "100%" }) : null);
}

if (!customElements.get("weir-meter")) customElements.define("weir-meter", WeirMeter);
