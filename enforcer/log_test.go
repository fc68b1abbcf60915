package enforcer_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirhq/weir/enforcer"
)

// call is one line of a caller's log.
type call struct {
	began, ended time.Duration
	units        int64
	decision     enforcer.Reason
}

// falseRefusals returns the refusals that later calls prove false: n units were refused although calls that began
// after the refusal were still admitted n units or more. Filling a ceiling exactly does not prove their absence.
func falseRefusals(log []call) []call {
	byBegin, byEnd := slices.Clone(log), slices.Clone(log)
	slices.SortFunc(byBegin, func(a, b call) int { return cmp.Compare(b.began, a.began) })
	slices.SortFunc(byEnd, func(a, b call) int { return cmp.Compare(b.ended, a.ended) })
	var wrong []call
	var after int64 // units admitted to calls that began after the refusal at hand had ended
	i := 0
	for _, r := range byEnd {
		for i < len(byBegin) && byBegin[i].began > r.ended {
			if byBegin[i].decision == enforcer.OK {
				after += byBegin[i].units
			}
			i++
		}
		if r.decision == enforcer.QuotaExceeded && after >= r.units {
			wrong = append(wrong, r)
		}
	}
	return wrong
}

// tally sums calls up.
type tally struct {
	Calls, Admitted, Units, Refused, Unavailable, Other int64
	False                                               int
	FalseUnits                                          int64
}

func tallyOf(log []call) tally {
	var x tally
	for _, c := range log {
		x.Calls++
		switch c.decision {
		case enforcer.OK:
			x.Admitted++
			x.Units += c.units
		case enforcer.QuotaExceeded:
			x.Refused++
		case enforcer.Unavailable:
			x.Unavailable++
		default:
			x.Other++
		}
	}
	for _, f := range falseRefusals(log) {
		x.False++
		x.FalseUnits += f.units
	}
	return x
}
