package billing

import (
	"context"
	"errors"
	"fmt"
	"net/mail"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/wording"
	"github.com/weirhq/weir/usage"
)

// maxNegotiated bounds what an override or a cap may say, far above any plan.
const maxNegotiated = 1 << 53

// SetOverride sets what was negotiated with an account for a feature, in place of what was before. Nil: as the plan
// says. It counts at once.
type SetOverride struct {
	Account     string `json:"-"`
	Feature     string `json:"feature"`
	Included    *int64 `json:"included"`     // units per period
	Maximum     *int64 `json:"maximum"`      // overage units per period
	SpendingCap *int64 `json:"spending_cap"` // overage units per period, the customer's own
}

func (a *SetOverride) about() (name, subject, account string) {
	return "override", a.Account, a.Account
}

func (a *SetOverride) check(*Biller) error {
	for name, v := range map[string]*int64{"included units": a.Included, "maximum": a.Maximum, "spending cap": a.SpendingCap} {
		if v != nil && (*v < 0 || *v > maxNegotiated) {
			return fmt.Errorf("%d is no number of %s: use 0 to %d units", *v, name, int64(maxNegotiated))
		}
	}
	return checkNames(a.Account, a.Feature)
}

func (a *SetOverride) apply(ctx context.Context, _ *Biller, tx pgx.Tx, by usage.By, now time.Time) (string, error) {
	id, err := usage.FindAccount(ctx, tx, a.Account, true, now)
	if err != nil {
		return "", err
	}
	err = usage.SetOverride(ctx, tx, id, a.Feature, usage.Override{
		Included: a.Included, Maximum: a.Maximum, SpendingCap: a.SpendingCap, Reason: by.Reason, Actor: by.Actor,
	}, now)
	if errors.Is(err, usage.ErrNotFound) {
		return "", fmt.Errorf("no published plan file has the feature %q: %w", a.Feature, err)
	}
	return fmt.Sprintf("%s: included %s, maximum %s, spending cap %s", a.Feature, asPlan(a.Included), asPlan(a.Maximum), capText(a.SpendingCap)), err
}

func asPlan(n *int64) string {
	if n == nil {
		return "as the plan says"
	}
	return wording.Count(*n)
}

// SetSpendingCap sets the customer's own bound of overage for a feature; what was negotiated beside it stays.
type SetSpendingCap struct {
	Account string `json:"-"`
	Feature string `json:"feature"`
	Units   *int64 `json:"units"` // overage units per period; nil: none
}

func (a *SetSpendingCap) about() (name, subject, account string) {
	return "spending cap", a.Account, a.Account
}

func (a *SetSpendingCap) check(*Biller) error {
	if a.Units != nil && (*a.Units < 0 || *a.Units > maxNegotiated) {
		return fmt.Errorf("%d is no spending cap: use 0 to %d units", *a.Units, int64(maxNegotiated))
	}
	return checkNames(a.Account, a.Feature)
}

func (a *SetSpendingCap) apply(ctx context.Context, _ *Biller, tx pgx.Tx, by usage.By, now time.Time) (string, error) {
	err := usage.SetSpendingCap(ctx, tx, a.Account, a.Feature, a.Units, by.Actor, now)
	if errors.Is(err, usage.ErrNotFound) {
		return "", fmt.Errorf("no account %q, or no feature %q: %w", a.Account, a.Feature, err)
	}
	if a.Units == nil {
		return a.Feature + ": no spending cap", err
	}
	return fmt.Sprintf("%s: at most %s units of overage in a period", a.Feature, wording.Count(*a.Units)), err
}

// Adjust corrects what was counted for an account and feature in the period that holds At: it adds units, or refunds
// them when negative. Overage that moves is reported before the invoice is final, and late or credited after it.
type Adjust struct {
	Account string    `json:"-"`
	Feature string    `json:"feature"`
	At      time.Time `json:"at"` // zero: now
	Units   int64     `json:"units"`

	Done usage.Adjustment `json:"-"`
}

func (a *Adjust) about() (name, subject, account string) { return "adjust", a.Account, a.Account }

func (a *Adjust) check(b *Biller) error {
	if a.At.IsZero() {
		a.At = b.now()
	}
	if a.Units == 0 || a.Units > maxNegotiated || a.Units < -maxNegotiated {
		return fmt.Errorf("%d units can't be added: give up to %d, negative for a refund", a.Units, int64(maxNegotiated))
	}
	return checkNames(a.Account, a.Feature)
}

func (a *Adjust) apply(ctx context.Context, _ *Biller, tx pgx.Tx, by usage.By, now time.Time) (string, error) {
	id, err := usage.FindAccount(ctx, tx, a.Account, false, now)
	if err != nil {
		return "", fmt.Errorf("adjust %q: %w", a.Account, err)
	}
	if _, err := tx.Exec(ctx, "SELECT weir.fold_account($1)", id); err != nil {
		return "", fmt.Errorf("adjust %q: %w", a.Account, err)
	}
	var key int64
	err = tx.QueryRow(ctx, `SELECT k.key FROM weir.keys k JOIN weir.features f ON f.id = k.feature_id
		WHERE k.period_id = weir.period_at($1, $2) AND f.name = $3`, id, a.At, a.Feature).Scan(&key)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", &permanentError{fmt.Errorf("adjust %q: no period of it holds %s for feature %q: %w", a.Account, a.At.Format(time.RFC3339), a.Feature, usage.ErrNotFound)}
	}
	if err != nil {
		return "", fmt.Errorf("adjust %q: %w", a.Account, err)
	}
	if a.Done, err = usage.Adjust(ctx, tx, key, a.Units, by.Reason, by.Actor, now); err != nil {
		return "", fmt.Errorf("adjust %q: %w", a.Account, err)
	}
	_, err = tx.Exec(ctx, "SELECT weir.book(ARRAY[$1::bigint], $2)", key, now)
	if err == nil {
		_, err = tx.Exec(ctx, "INSERT INTO weir.chains AS h (key, due) VALUES ($1, true) ON CONFLICT (key) DO UPDATE SET due = true", key)
	}
	if err != nil {
		return "", fmt.Errorf("adjust %q: %w", a.Account, err)
	}
	return fmt.Sprintf("%s units of %s: %s included and %s overage", signed(a.Done.Units), a.Feature, signed(a.Done.Free), signed(a.Done.Overage)), nil
}

// SetShadow puts an account into shadow mode, where nothing is refused, or takes it out.
type SetShadow struct {
	Account string `json:"-"`
	On      bool   `json:"on"`
}

func (a *SetShadow) about() (name, subject, account string) { return "shadow", a.Account, a.Account }
func (a *SetShadow) check(*Biller) error                    { return usage.CheckAccount(a.Account) }

func (a *SetShadow) apply(ctx context.Context, _ *Biller, tx pgx.Tx, _ usage.By, now time.Time) (string, error) {
	id, err := usage.FindAccount(ctx, tx, a.Account, a.On, now)
	if err != nil {
		return "", fmt.Errorf("account %q: %w", a.Account, err)
	}
	if a.On {
		return "shadow mode: nothing is refused from now on", usage.SetShadow(ctx, tx, id, true)
	}
	return "no shadow mode: the account is refused as its plan says", usage.SetShadow(ctx, tx, id, false)
}

// SetContact sets where an account's warnings go by mail; an empty address forgets it.
type SetContact struct {
	Account string `json:"-"`
	Email   string `json:"-"` // the log does not keep it: it names a person
}

func (a *SetContact) about() (name, subject, account string) { return "contact", a.Account, a.Account }

func (a *SetContact) check(*Biller) error {
	if a.Email != "" {
		m, err := mail.ParseAddress(a.Email)
		if err != nil || m.Address != a.Email || len(a.Email) > 254 || len(a.Email) < 3 {
			return errors.New("the contact is one bare address such as billing@example.com, or nothing to forget it")
		}
	}
	return usage.CheckAccount(a.Account)
}

func (a *SetContact) apply(ctx context.Context, _ *Biller, tx pgx.Tx, by usage.By, now time.Time) (string, error) {
	message := "warnings go to the address that was given"
	if a.Email == "" {
		message = "warnings go to nobody"
	}
	return message, usage.SetContact(ctx, tx, a.Account, a.Email, by.Actor, now)
}

func checkNames(account, feature string) error {
	if strings.TrimSpace(feature) == "" || strings.ContainsRune(feature, 0) || len(feature) > 255 {
		return errors.New("the feature is not said")
	}
	return usage.CheckAccount(account)
}
