package plans

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// Catalog is a validated plan file. It never changes after Load, Parse or Decode, and all its
// methods may be called by many goroutines at once. The zero value holds no plan.
type Catalog struct {
	currency     string
	defaultPlan  string
	anonymous    Rate
	hasAnonymous bool
	quotaStatus  int
	upgradeURL   string
	features     []Feature // in the order of the file, as are plans
	plans        []Plan

	planAt    map[string]int
	featureAt map[string]int
	priceAt   map[string]int // price id or lookup key → plan

	canonical []byte
	hash      string
	warnings  []Problem
}

// Load reads and validates the plan file at path. When the file is not valid the error is an
// *Errors that holds everything that is wrong with it.
func Load(path string) (*Catalog, error) {
	data, err := readBounded(path)
	if err != nil {
		return nil, fmt.Errorf("load plan file: %w", err)
	}
	c, err := Parse(data)
	if err != nil {
		var all *Errors
		if errors.As(err, &all) {
			all.File = path
		}
		return nil, err
	}
	return c, nil
}

// readBounded reads one byte more than a plan file may have, so that Parse can refuse it.
func readBounded(path string) (data []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return io.ReadAll(io.LimitReader(f, maxFileBytes+1))
}

// Parse validates a plan file's content. When it is not valid the error is an *Errors that holds
// everything that is wrong with it.
func Parse(data []byte) (*Catalog, error) {
	r := &reader{places: make(map[string]place)}
	root := parseTree(data, &r.problems)
	if root == nil {
		return nil, r.err()
	}
	c := r.resolve(r.file(root))
	check(c, &r.problems, r.places)
	if err := r.err(); err != nil {
		return nil, err
	}
	c.warnings = sorted(append(r.warnings.list, c.priceWarnings(r.places)...))
	return c.seal()
}

// index builds the look-up tables; of two plans with one name or price the first is kept, and
// the checker reports the second.
func (c *Catalog) index() {
	c.planAt = make(map[string]int, len(c.plans))
	c.featureAt = make(map[string]int, len(c.features))
	c.priceAt = make(map[string]int)
	for i, f := range c.features {
		if _, ok := c.featureAt[f.Name]; !ok {
			c.featureAt[f.Name] = i
		}
	}
	for i, p := range c.plans {
		if _, ok := c.planAt[p.Name]; !ok {
			c.planAt[p.Name] = i
		}
		for _, id := range p.prices {
			if _, ok := c.priceAt[id]; !ok {
				c.priceAt[id] = i
			}
		}
	}
}

// seal stores the canonical encoding and its hash; nothing changes after it.
func (c *Catalog) seal() (*Catalog, error) {
	canonical, err := c.encode()
	if err != nil {
		return nil, fmt.Errorf("encode plan catalog: %w", err)
	}
	sum := sha256.Sum256(canonical)
	c.canonical, c.hash = canonical, hex.EncodeToString(sum[:])
	return c, nil
}

// Currency is the lower-case code of stated prices; it may be empty when nothing bills overage.
func (c *Catalog) Currency() string { return c.currency }

// DefaultPlan is the plan of accounts without a subscription. It never bills.
func (c *Catalog) DefaultPlan() Plan {
	p, _ := c.Plan(c.defaultPlan)
	return p
}

// Anonymous is the rate limit of callers known only by their address; ok is false when the file
// sets none.
func (c *Catalog) Anonymous() (rate Rate, ok bool) { return c.anonymous, c.hasAnonymous }

// QuotaStatus is the HTTP status of a refused quota: 402 or 403.
func (c *Catalog) QuotaStatus() int { return c.quotaStatus }

// UpgradeURL is the file's upgrade link; empty when it has none. Plan.UpgradeURL is what a plan's
// customers are shown.
func (c *Catalog) UpgradeURL() string { return c.upgradeURL }

// Plan returns the plan of that name.
func (c *Catalog) Plan(name string) (p Plan, ok bool) {
	i, ok := c.planAt[name]
	if !ok {
		return Plan{}, false
	}
	return c.plans[i], true
}

// PlanForPrice returns the plan that a Stripe price id or lookup key selects.
func (c *Catalog) PlanForPrice(idOrLookupKey string) (p Plan, ok bool) {
	i, ok := c.priceAt[idOrLookupKey]
	if !ok {
		return Plan{}, false
	}
	return c.plans[i], true
}

// Plans returns all plans in the order of the file.
func (c *Catalog) Plans() []Plan { return slices.Clone(c.plans) }

// Feature returns the feature of that name.
func (c *Catalog) Feature(name string) (f Feature, ok bool) {
	i, ok := c.featureAt[name]
	if !ok {
		return Feature{}, false
	}
	return c.features[i], true
}

// Features returns all features in the order of the file.
func (c *Catalog) Features() []Feature { return slices.Clone(c.features) }

// BillsOverage reports whether any plan bills overage, so that a Stripe key is needed.
func (c *Catalog) BillsOverage() bool {
	return slices.ContainsFunc(c.plans, Plan.BillsOverage)
}

// Hash identifies the terms: the SHA-256, in hex, of the canonical encoding. Comments, order of
// keys within a mapping, and spelled-out defaults do not change it.
func (c *Catalog) Hash() string { return c.hash }

// Warnings returns what is legal in the file but may not be meant, in the order of the file. A
// decoded catalog has none.
func (c *Catalog) Warnings() []Problem { return slices.Clone(c.warnings) }
