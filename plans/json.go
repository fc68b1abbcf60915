package plans

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// format is the number of the JSON form. It goes up when an older binary would misread a newer
// catalog; keys that an older binary may ignore do not change it.
const format = 1

type jsonCatalog struct {
	Format      int                    `json:"format"`
	Currency    string                 `json:"currency"`
	DefaultPlan string                 `json:"default_plan"`
	Anonymous   *jsonRate              `json:"anonymous"`
	QuotaStatus int                    `json:"quota_status"`
	UpgradeURL  string                 `json:"upgrade_url"`
	Features    map[string]jsonFeature `json:"features"`
	Plans       map[string]jsonPlan    `json:"plans"`
}

type jsonFeature struct {
	Position    int    `json:"position"` // in the file: jsonb keeps no order of keys
	Meter       string `json:"meter"`
	DisplayName string `json:"display_name"`
	Unit        string `json:"unit"`
	Units       string `json:"units,omitempty"` // left out where there is none: files without it keep their hash
}

type jsonRate struct {
	Limit         int64     `json:"limit"`
	WindowSeconds int64     `json:"window_seconds"`
	Algorithm     Algorithm `json:"algorithm"`
	Burst         int64     `json:"burst"`
	PerNode       string    `json:"per_node"`
}

type jsonPlan struct {
	Position            int                  `json:"position"`
	DisplayName         string               `json:"display_name"`
	Prices              []string             `json:"prices"`
	Rate                *jsonRate            `json:"rate"`
	Interval            Interval             `json:"interval"`
	OnUpgrade           string               `json:"on_upgrade"`
	EarlyEnd            string               `json:"early_end"`
	WhenNotBillable     NotBillable          `json:"when_not_billable"`
	Late                Late                 `json:"late"`
	PastDueGraceSeconds int64                `json:"past_due_grace_seconds"`
	Shadow              bool                 `json:"shadow"`
	UpgradeURL          string               `json:"upgrade_url"`
	Quota               map[string]jsonQuota `json:"quota"`
}

type jsonQuota struct {
	Position          int    `json:"position"`
	Included          Amount `json:"included"` // null: unlimited
	OnExceeded        string `json:"on_exceeded"`
	Max               Amount `json:"max"`       // null: unlimited; 0 for block
	Price             string `json:"price"`     // empty: read from Stripe
	PricePer          int64  `json:"price_per"` // 0: likewise
	UnitAmountDecimal string `json:"unit_amount_decimal"`
	WarnAt            []int  `json:"warn_at"`
	Enforce           string `json:"enforce"`
	Per               string `json:"per"`
	WhenDatabaseAway  string `json:"when_database_away"`
}

// MarshalJSON is the canonical encoding, every default filled in: what is published as jsonb.
// Plans, features and quotas are objects by name; an unlimited count is null.
func (c *Catalog) MarshalJSON() ([]byte, error) {
	if c.canonical == nil {
		return nil, fmt.Errorf("encode plan catalog: it was not made by Load, Parse or Decode")
	}
	return slices.Clone(c.canonical), nil
}

func (c *Catalog) encode() ([]byte, error) {
	out := jsonCatalog{
		Format: format, Currency: c.currency, DefaultPlan: c.defaultPlan,
		QuotaStatus: c.quotaStatus, UpgradeURL: c.upgradeURL,
		Features: make(map[string]jsonFeature, len(c.features)),
		Plans:    make(map[string]jsonPlan, len(c.plans)),
	}
	if c.hasAnonymous {
		out.Anonymous = encodeRate(c.anonymous)
	}
	for i, f := range c.features {
		out.Features[f.Name] = jsonFeature{Position: i, Meter: f.Meter, DisplayName: f.DisplayName, Unit: f.Unit, Units: f.Units}
	}
	for i, p := range c.plans {
		out.Plans[p.Name] = encodePlan(i, p)
	}
	return json.Marshal(out) // sorts the keys of maps
}

func encodeRate(r Rate) *jsonRate {
	return &jsonRate{
		Limit: r.Limit, WindowSeconds: int64(r.Window / time.Second), Algorithm: r.Algorithm, Burst: r.Burst,
		PerNode: choose(r.Each, "each", "divide"),
	}
}

func encodePlan(position int, p Plan) jsonPlan {
	out := jsonPlan{
		Position: position, DisplayName: p.DisplayName, Prices: append([]string{}, p.prices...),
		Interval: p.Interval, OnUpgrade: choose(p.ForgiveOnUpgrade, "forgive", "keep"),
		EarlyEnd: choose(p.FreshAfterEarlyEnd, "fresh", "carry"), WhenNotBillable: p.NotBillable, Late: p.Late,
		PastDueGraceSeconds: int64(p.PastDueGrace / time.Second), Shadow: p.Shadow, UpgradeURL: p.UpgradeURL,
		Quota: make(map[string]jsonQuota, len(p.quotas)),
	}
	if p.HasRate {
		out.Rate = encodeRate(p.Rate)
	}
	for i, q := range p.quotas {
		out.Quota[q.Feature] = encodeQuota(i, q)
	}
	return out
}

func encodeQuota(position int, q Quota) jsonQuota {
	out := jsonQuota{
		Position: position, Included: q.Included, OnExceeded: choose(q.BillOverage, "bill_overage", "block"), Max: q.Max,
		UnitAmountDecimal: q.Price.UnitAmountDecimal(), WarnAt: append([]int{}, q.WarnAt...),
		Enforce: choose(q.Strict, "strict", "leases"), Per: choose(q.PerQuantity, "quantity", "subscription"),
		WhenDatabaseAway: choose(q.ContinueWithoutDatabase, "continue", "unavailable"),
	}
	if !q.Price.FromStripe() {
		out.Price, out.PricePer = plain(q.Price.Amount()), q.Price.Per()
	}
	return out
}

func choose(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

// Decode reads what MarshalJSON wrote, also after Postgres stored it as jsonb, and validates it
// like a file. The error is an *Errors without lines when the content is not valid.
func Decode(data []byte) (*Catalog, error) {
	if len(data) > maxEncodedBytes {
		return nil, fmt.Errorf("decode plan catalog: %d bytes are more than %d", len(data), maxEncodedBytes)
	}
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("decode plan catalog: %w", err)
	}
	if head.Format != format {
		return nil, fmt.Errorf("decode plan catalog: its format is %d, this program reads %d: "+
			"update the program that is older", head.Format, format)
	}
	var in jsonCatalog
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, fmt.Errorf("decode plan catalog: %w", err)
	}
	d := &decoder{}
	c := d.catalog(in)
	c.index()
	check(c, &d.problems, nil)
	if err := d.err(); err != nil {
		return nil, err
	}
	return c.seal()
}

// UnmarshalJSON is Decode into a zero Catalog; one that already holds plans never changes and
// is refused.
func (c *Catalog) UnmarshalJSON(data []byte) error {
	if c.canonical != nil {
		return fmt.Errorf("decode plan catalog: the target already holds one, and catalogs do not change")
	}
	read, err := Decode(data)
	if err != nil {
		return err
	}
	*c = *read
	return nil
}
