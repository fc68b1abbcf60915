package usage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	pressChunk = 5_000  // periods in one transaction of a pass
	mostNear   = 10_000 // where counting stops
	// PaceMinutes is how far back ReadPace looks.
	PaceMinutes = 60
)

// RefreshPressing looks at all running periods for those that have used 80 percent of their ceiling, in short
// transactions, unless a pass began less than each ago (wall time) in any process. It reports whether it looked.
func RefreshPressing(ctx context.Context, db DB, now time.Time, each time.Duration) (bool, error) {
	tag, err := db.Exec(ctx, "UPDATE weir.pressing_pass SET wall = clock_timestamp() WHERE wall <= clock_timestamp() - $1::interval", each)
	if err != nil || tag.RowsAffected() == 0 {
		return false, wrap("look for pressing accounts", err)
	}
	after := int64(0)
	for {
		var last *int64
		if err := db.QueryRow(ctx, "SELECT weir.press_chunk($1, $2, $3)", now, after, pressChunk).Scan(&last); err != nil {
			return false, wrap("look for pressing accounts", err)
		}
		if last == nil {
			break
		}
		after = *last
	}
	_, err = db.Exec(ctx, "UPDATE weir.pressing_pass SET at = $1", now)
	return err == nil, wrap("look for pressing accounts", err)
}

// Pressing is a feature of an account that is near its ceiling in the running period, or over it.
type Pressing struct {
	Account  string
	Feature  string
	Plan     string
	Used     int64 // units, the inbox included, corrections too
	Most     int64 // units that may be used in all
	Overage  int64 // folded
	Permille int   // Used of Most
	Ends     time.Time
}

// Pressure is what the last pass of RefreshPressing found.
type Pressure struct {
	Worst []Pressing
	Near  int64     // keys at 80 percent and more, those over included; counted up to 10,000
	Over  int64     // keys without a unit left; counted up to 10,000
	AsOf  time.Time // business time of the pass; zero: there was none yet
}

// ReadPressure reads the worst of it, at most most, with the amounts as they are now.
func ReadPressure(ctx context.Context, db DB, now time.Time, most int) (Pressure, error) {
	var p Pressure
	var at *time.Time
	err := db.QueryRow(ctx, `SELECT (SELECT count(*) FROM (SELECT FROM weir.pressing LIMIT $1) x),
		(SELECT count(*) FROM (SELECT FROM weir.pressing WHERE permille >= 1000 LIMIT $1) x), (SELECT at FROM weir.pressing_pass)`, mostNear).Scan(&p.Near, &p.Over, &at)
	if err != nil {
		return p, wrap("read pressing accounts", err)
	}
	if at != nil {
		p.AsOf = *at
	}
	// Some may have been relieved since, or have passed others: twice as many are looked at.
	rows, err := db.Query(ctx, `
		SELECT a.account, f.name, k.plan, k.used, k.most, k.overage, k.permille, k.ends
		FROM (SELECT k.account_id, k.feature_id, p.plan, u.used, greatest(0, u.used + q.ceiling - u.folded) AS most, t.overage,
		             weir.pressure(u.used, u.folded, q.ceiling) AS permille, coalesce(p.cut, p.ends) AS ends
		      FROM (SELECT x.key FROM weir.pressing x ORDER BY x.permille DESC, x.key LIMIT 2 * $2::integer) s
		      JOIN weir.keys k ON k.key = s.key JOIN weir.periods p ON p.id = k.period_id AND p.state = 'open'
		      JOIN weir.totals t ON t.key = k.key JOIN weir.quotas q ON q.key = k.key
		      CROSS JOIN LATERAL (  -- as weir.stored does it, without a call for each row
		          SELECT t.free + t.overage + o.units AS used, t.used + o.units AS folded
		          FROM (SELECT coalesce(sum(greatest(0, i.upto - coalesce(d.used, 0))), 0)::bigint AS units
		                FROM (SELECT b.node, max(b.upto) AS upto FROM weir.inbox b WHERE b.key = s.key GROUP BY b.node) i
		                LEFT JOIN weir.done d ON d.key = s.key AND d.node = i.node) o OFFSET 0) u
		      WHERE p.starts <= $1 AND coalesce(p.cut, p.ends) > $1) k
		JOIN weir.accounts a ON a.id = k.account_id JOIN weir.features f ON f.id = k.feature_id
		WHERE k.permille >= 800 ORDER BY k.permille DESC, k.used DESC, a.account LIMIT $2`, now, most)
	if err != nil {
		return p, wrap("read pressing accounts", err)
	}
	p.Worst, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Pressing])
	return p, wrap("read pressing accounts", err)
}

// Pace is what all accounts used of a feature, by the minute in which it was counted.
type Pace struct {
	Feature string
	Units   []int64 // of each of the last PaceMinutes whole minutes, oldest first
}

// Last is the units of the last whole minute; Hour of all of them.
func (p *Pace) Last() int64 { return p.Units[len(p.Units)-1] }

// Hour is the units of the last hour.
func (p *Pace) Hour() int64 {
	var sum int64
	for _, u := range p.Units {
		sum += min(u, Boundless-sum)
	}
	return sum
}

// ReadPace reads the pace as the fold has recorded it, the busiest features first, at most most. The minute that runs
// is left out: it is not whole, and what was counted in it is still on its way.
func ReadPace(ctx context.Context, db DB, now time.Time, most int) ([]Pace, error) {
	end := now.UTC().Truncate(time.Minute)
	rows, err := db.Query(ctx, `SELECT f.name, array_agg(extract(epoch FROM $1::timestamptz - c.minute)::integer / 60), array_agg(least(c.units, $4::bigint)::bigint)
		FROM weir.pace c JOIN weir.features f ON f.id = c.feature_id WHERE c.minute >= $2 AND c.minute < $1
		GROUP BY 1 ORDER BY sum(c.units) DESC, 1 LIMIT $3`, end, end.Add(-PaceMinutes*time.Minute), most, int64(Boundless))
	if err != nil {
		return nil, wrap("read the pace", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Pace, error) {
		p := Pace{Units: make([]int64, PaceMinutes)}
		var ago []int32
		var units []int64
		if err := row.Scan(&p.Feature, &ago, &units); err != nil {
			return p, err
		}
		for i, a := range ago { // 1 to PaceMinutes
			p.Units[PaceMinutes-int(a)] = units[i]
		}
		return p, nil
	})
	return all, wrap("read the pace", err)
}
