package web

import (
	"time"

	"github.com/shopspring/decimal"

	"github.com/weirhq/weir/books"
)

const (
	paceDays  = 7             // days that a pace is taken from, today included
	paceFirst = 6 * time.Hour // of a period say too little
)

// pace is how fast units go, and where that leads by the period's end. It is an estimate and bills nothing.
type pace struct {
	PerDay    int64
	Used      int64     // by the period's end
	Overage   int64     // of it, within what is admitted
	Days      int       // that it was taken from, rounded up
	Exhausted time.Time // when the included units are gone; zero: not in this period, or already
}

// paceOf is the pace of the last days; ok is false while there is too little to tell by.
func paceOf(l *books.StatementLine, now time.Time) (p pace, ok bool) {
	today := now.UTC().Truncate(24 * time.Hour)
	from := today.AddDate(0, 0, 1-paceDays)
	if from.Before(l.Starts) {
		from = l.Starts
	}
	took := now.Sub(from)
	if took < paceFirst || !now.Before(l.Ends) {
		return pace{}, false
	}
	var units int64
	for _, d := range l.Days {
		if !d.Day.Before(from.Truncate(24*time.Hour)) && !d.Day.After(today) {
			units += d.Used
		}
	}
	if units <= 0 {
		return pace{}, false
	}
	// Whole seconds: what is above them changes no estimate.
	spent := decimal.NewFromInt(int64(took / time.Second))
	in := func(d time.Duration) int64 {
		return decimal.NewFromInt(units).Mul(decimal.NewFromInt(int64(d / time.Second))).Div(spent).Round(0).IntPart()
	}
	p = pace{PerDay: in(24 * time.Hour), Used: l.Used + in(l.Ends.Sub(now)), Days: int((took + 24*time.Hour - 1) / (24 * time.Hour))}
	if l.Included == nil {
		return p, true
	}
	if top := ceiling(l); top >= 0 {
		p.Used = min(p.Used, max(top, l.Used))
	}
	p.Overage = max(l.Overage, p.Used-*l.Included)
	if rest := *l.Included - l.Free; rest > 0 {
		need := decimal.NewFromInt(rest).Mul(spent).Div(decimal.NewFromInt(units)).Ceil()
		if left := l.Ends.Sub(now); need.LessThan(decimal.NewFromInt(int64(left / time.Second))) {
			p.Exhausted = now.Add(time.Duration(need.IntPart()) * time.Second)
		}
	}
	return p, true
}

// goesOn reports whether calls go on whatever was used: in shadow mode nothing is refused but what the plan lacks.
func goesOn(l *books.StatementLine) bool { return l.Shadow && l.InPlan }

// ceiling is the most that may be admitted in a period, -1 when nothing bounds it.
func ceiling(l *books.StatementLine) int64 {
	if l.Included == nil || goesOn(l) {
		return -1
	}
	most := int64(0)
	if l.OverageOpen {
		if most = overageBound(l); most < 0 {
			return -1
		}
	}
	return *l.Included + most
}

// billedAtMost is the part of overage that may be billed, for what goes on beyond a bound is not.
func billedAtMost(l *books.StatementLine, over int64) int64 {
	if most := overageBound(l); goesOn(l) && most >= 0 {
		return min(over, most)
	}
	return over
}

// overageBound is the lower of maximum and spending cap, -1 when there is neither.
func overageBound(l *books.StatementLine) int64 {
	switch {
	case l.SpendingCap != nil && (l.Maximum == nil || *l.SpendingCap < *l.Maximum):
		return *l.SpendingCap
	case l.Maximum != nil:
		return *l.Maximum
	}
	return -1
}

// capped reports whether the customer's own cap is what bounds the overage.
func capped(l *books.StatementLine) bool {
	return l.SpendingCap != nil && (l.Maximum == nil || *l.SpendingCap < *l.Maximum)
}
