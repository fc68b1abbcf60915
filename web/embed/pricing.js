// <weir-pricing>: the published plans beside each other.

class WeirPricing extends WeirElement {
  static refresh = 0; // read once
  static cache = "default";
  static fits = (data) => Array.isArray(data?.plans);
  static texts = {
    loading: "Loading the plans…",
    expired: "The plans can't be shown.",
    unavailable: "The plans can't be read now. Trying again…",
    stale: "These plans may be old: newer ones can't be read now. Trying again…",
    caption: "Plans and what they include",
    unlimited: "Unlimited",
    missing: "Not included",
    perSeat: "{included} per seat",
    each: "each {interval}",
    month: "month", quarter: "quarter", year: "year",
    refused: "then refused",
    billed: "then billed by use",
    price: "then {price} per {per}",
    upTo: "up to {max} more",
    rate: "Calls",
    rateOf: "{limit} in {seconds} s",
    rateSecond: "{limit} a second", rateMinute: "{limit} a minute", rateHour: "{limit} an hour", rateDay: "{limit} a day",
    noRate: "No limit",
    current: "Your plan",
    choose: "Choose {plan}",
  };
  static sheet = sheetOf(`
    .scroll { overflow-x: auto; }
    table { width: 100%; border-collapse: collapse; }
    th, td { padding: 0.7em 1em 0.7em 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); font-weight: 400; min-width: 7em; }
    thead th { font-weight: 600; }
    thead th, thead td { vertical-align: bottom; }
    tbody th { overflow-wrap: anywhere; }
    tbody tr:last-child > * { border-bottom: 0; }
    b, small, .badge { display: block; }
    small { font-size: 0.8125em; font-weight: 400; }
    .badge { width: fit-content; margin-bottom: 0.3em; padding: 0.1em 0.6em; border: 1px solid var(--flow); border-radius: 1em; font-size: 0.75em; }
    .action { display: inline-block; padding: 0.3em 0; font-weight: 600; }`);

  draw(data, format) {
    const plans = data.plans.filter((p) => p && Array.isArray(p.quotas));
    const features = new Map();
    for (const p of plans) for (const q of p.quotas) if (!features.has(q.feature)) features.set(q.feature, String(q.name));
    const rows = [...features].map(([feature, name]) => this.#row(name, plans.map((p) => {
      const quota = p.quotas.find((q) => q.feature === feature);
      return quota ? this.#quota(quota, data.currency, format) : [this.say("missing")];
    })));
    if (plans.some((p) => p.rate)) rows.push(this.#row(this.say("rate"), plans.map((p) => [p.rate ? this.#rate(p.rate, format) : this.say("noRate")])));
    const links = plans.map((p) => (p.plan === this.getAttribute("current") ? null : webLink(p.upgrade_url, this.say("choose", { plan: String(p.name) }), `choose ${p.plan}`)));
    if (links.some(Boolean)) rows.push(make("tr", {}, make("td", {}), ...links.map((link) => make("td", {}, link))));
    return [make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": this.say("caption"), "data-key": "table" },
      make("table", { part: "table" },
        make("caption", { class: "sr" }, this.say("caption")),
        make("thead", {}, make("tr", {}, make("td", {}), ...plans.map((p) => this.#head(p)))),
        make("tbody", {}, ...rows)))];
  }

  // head names a plan. The host's own price of it goes into the slot price-PLAN: Weir knows what use costs, and not it.
  #head(p) {
    const mine = p.plan === this.getAttribute("current");
    return make("th", { scope: "col", part: mine ? "plan current" : "plan" },
      mine ? make("span", { class: "badge", part: "badge" }, this.say("current")) : null,
      String(p.name), make("small", {}, make("slot", { name: `price-${p.plan}` })), make("small", {}, this.say("each", { interval: this.#interval(p.interval) })));
  }

  #interval(name) {
    return Object.hasOwn(WeirPricing.texts, name) ? this.say(name) : String(name);
  }

  #row(name, cells) {
    return make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((parts) => make("td", {}, ...parts)));
  }

  #quota(q, currency, format) {
    if (q.included === null || q.included === undefined) return [make("b", {}, this.say("unlimited"))];
    const included = format.count(q.included);
    return [make("b", {}, q.per_quantity ? this.say("perSeat", { included }) : included), make("small", {}, this.#past(q, currency, format))];
  }

  // past is what happens when the included units are used.
  #past(q, currency, format) {
    if (!q.overage) return this.say("refused");
    const { price, per, max } = q.overage;
    const text = price && currency ? this.say("price", { price: format.money(price, currency), per: format.count(per) }) : this.say("billed");
    return max === null || max === undefined ? text : `${text}, ${this.say("upTo", { max: format.count(max) })}`;
  }

  #rate(r, format) {
    const name = { 1: "rateSecond", 60: "rateMinute", 3600: "rateHour", 86400: "rateDay" }[r.window_seconds] ?? "rateOf";
    return this.say(name, { limit: format.count(r.limit), seconds: format.count(r.window_seconds) });
  }
}

if (!customElements.get("weir-pricing")) customElements.define("weir-pricing", WeirPricing);
