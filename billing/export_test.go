package billing

import (
	"context"
	"time"

	"github.com/weirhq/weir/usage"
)

// NaturalPeriod is naturalPeriod for tests outside the package.
var NaturalPeriod = naturalPeriod

// NoteSkew is noteSkew for tests outside the package.
func (b *Biller) NoteSkew(ctx context.Context, skew time.Duration) error {
	return b.noteSkew(ctx, skew)
}

// What tests do often, each through Do.

func (b *Biller) Adjust(ctx context.Context, account, feature string, at time.Time, count int64, actor, reason string) (usage.Adjustment, error) {
	a := Adjust{Account: account, Feature: feature, At: at, Units: count}
	_, err := b.Do(ctx, &a, usage.By{Actor: actor, Way: usage.WayCLI, Reason: reason})
	return a.Done, err
}

func (b *Biller) LateRelease(ctx context.Context, id int64, policy, actor, reason string) error {
	_, err := b.Do(ctx, &ReleaseLate{ID: id, Policy: policy}, usage.By{Actor: actor, Way: usage.WayCLI, Reason: reason})
	return err
}

func (b *Biller) Link(ctx context.Context, account, customer, actor string) error {
	_, err := b.Do(ctx, &MapCustomer{Account: account, Customer: customer}, usage.By{Actor: actor, Way: usage.WayAPI, Reason: "a test"})
	return err
}

func (b *Biller) Settle(ctx context.Context, account string) ([]Settlement, error) {
	a := Settle{Account: account}
	_, err := b.Do(ctx, &a, usage.By{Actor: "tester", Way: usage.WayAPI, Reason: "a test"})
	return a.Done, err
}

func (b *Biller) Replay(ctx context.Context, actor string) (customers, reports int, err error) {
	var a Replay
	_, err = b.Do(ctx, &a, usage.By{Actor: actor, Way: usage.WayCLI, Reason: "a test"})
	return a.Customers, a.Reports, err
}

func (b *Biller) Restored(ctx context.Context, actor string) error {
	_, err := b.Do(ctx, &SayRestored{}, usage.By{Actor: actor, Way: usage.WayCLI, Reason: "a test"})
	return err
}

func (b *Biller) Resume(ctx context.Context, cause, actor string) error {
	_, err := b.Do(ctx, &ResumeReports{Cause: cause}, usage.By{Actor: actor, Way: usage.WayCLI, Reason: "a test"})
	return err
}
