package books

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/usage"
)

// MaxStoryEvents bounds one page of a story.
const MaxStoryEvents = 200

// StoryEvent is one thing that happened to an account.
type StoryEvent struct {
	At   time.Time
	Ref  string // identifies it within the account's story
	Kind string // one of StoryKinds
	What string // what happened, one of a few words per kind
	Data map[string]any
}

// StoryCursor is a place in a story: events that are older follow. The zero value is the beginning, the newest.
type StoryCursor struct {
	At  time.Time
	Ref string
}

// StoryKinds are the kinds of events, as a filter may name them.
func StoryKinds() []string {
	var kinds []string
	for _, s := range storySources {
		if !slices.Contains(kinds, s.kind) {
			kinds = append(kinds, s.kind)
		}
	}
	return kinds
}

// ReadStory reads up to most events of an account, the newest first, from a cursor on and of one kind, or of all when
// kind is empty. more says that older ones follow the last one. An unknown account is usage.ErrNotFound.
func ReadStory(ctx context.Context, db usage.DB, account, kind string, from StoryCursor, most int, now time.Time) (events []StoryEvent, more bool, err error) {
	if kind != "" && !slices.Contains(StoryKinds(), kind) {
		return nil, false, fmt.Errorf("read the story: no kind is called %q: %w", kind, usage.ErrNotFound)
	}
	most = max(1, min(most, MaxStoryEvents))
	id, err := usage.FindAccount(ctx, db, account, false, now)
	if err != nil {
		return nil, false, err
	}
	if from.At.IsZero() {
		from.At = now.UTC().Truncate(24*time.Hour).AddDate(0, 0, 1) // today's counters, and no period that has not begun
	}
	err = inSnapshot(ctx, db, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, storyQuery(kind), id, from.At, from.Ref, most+1)
		if err != nil {
			return err
		}
		events, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (StoryEvent, error) {
			var e StoryEvent
			var data []byte
			if err := row.Scan(&e.At, &e.Ref, &e.Kind, &e.What, &data); err != nil {
				return e, err
			}
			d := json.NewDecoder(strings.NewReader(string(data)))
			d.UseNumber()
			return e, d.Decode(&e.Data)
		})
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("read the story: %w", err)
	}
	if len(events) > most {
		return events[:most], true, nil
	}
	return events, false, nil
}

// StoryQueries are what ReadStory runs: the settings of its transaction, then its query. Arguments: the account's
// number, an instant, a ref, a limit.
func StoryQueries() []string { return []string{byIndex, storyQuery("")} }

// storySource is one table's part of the story. Its query returns instant, ref, what and data; keys are the account's
// keys, and customers whom it is or was mapped to. at and ref are expressions that an order may be made of.
type storySource struct{ kind, at, ref, what, data, from string }

// storyQuery unites the sources: each gives its newest rows before the cursor.
func storyQuery(kind string) string {
	var b strings.Builder
	b.WriteString(`WITH keys AS MATERIALIZED (
		SELECT k.key, f.name AS feature, k.period_id FROM weir.keys k JOIN weir.features f ON f.id = k.feature_id WHERE k.account_id = $1),
	customers AS MATERIALIZED (
		SELECT c.customer FROM weir.customers c WHERE c.account_id = $1
		UNION SELECT m.customer FROM weir.mapping_log m WHERE m.account_id = $1 LIMIT 50)
	SELECT u.at, u.ref, u.kind, u.what, u.data FROM (`)
	first := true
	for _, s := range storySources {
		if kind != "" && s.kind != kind {
			continue
		}
		if !first {
			b.WriteString("\nUNION ALL\n")
		}
		first = false
		fmt.Fprintf(&b, "(SELECT x.at, x.ref, '%s' AS kind, x.what, x.data FROM ", s.kind)
		part := fmt.Sprintf("SELECT %[1]s AS at, %[2]s AS ref, %[3]s AS what, %[4]s AS data %[5]s AND %[1]s <= $2 AND (%[1]s, %[2]s) < ($2, $3) ORDER BY %[1]s DESC, %[2]s DESC LIMIT $4",
			s.at, s.ref, s.what, s.data, s.from)
		if strings.Contains(s.from, "k.key") {
			fmt.Fprintf(&b, "keys k CROSS JOIN LATERAL (%s) x", part)
		} else {
			fmt.Fprintf(&b, "(%s) x", part)
		}
		b.WriteString(" ORDER BY x.at DESC, x.ref DESC LIMIT $4)")
	}
	b.WriteString(") u ORDER BY u.at DESC, u.ref DESC LIMIT $4")
	return b.String()
}
