package stripesim

import "sort"

// listing is a request for one page of a list.
type listing struct {
	limit         int
	after, before string
}

func (n *node) listing() listing {
	l := listing{limit: int(n.integerOr("limit", 10)), after: n.str("starting_after"), before: n.str("ending_before")}
	if l.limit < 1 || l.limit > 100 {
		n.form.fail(invalid("Invalid limit: must be between 1 and 100").withParam("limit"))
	}
	if l.after != "" && l.before != "" {
		n.form.fail(invalid("You cannot parameterize both starting_after and ending_before."))
	}
	return l
}

// newestFirst pages through rows, which are in order of creation, from the
// newest to the oldest. cursor finds the object that a cursor names.
func newestFirst[T entity](l listing, rows []T, cursor func(id string) (T, bool), keep func(T) bool) ([]T, bool, error) {
	if l.before != "" {
		return newestFirstBefore(l, rows, cursor, keep)
	}
	from := len(rows)
	if l.after != "" {
		at, ok := cursor(l.after)
		if !ok {
			return nil, false, missingParam("object", l.after, "starting_after")
		}
		from = position(rows, at)
	}
	page := make([]T, 0, l.limit)
	for i := from - 1; i >= 0; i-- {
		if !keep(rows[i]) {
			continue
		}
		if len(page) == l.limit {
			return page, true, nil
		}
		page = append(page, rows[i])
	}
	return page, false, nil
}

func newestFirstBefore[T entity](l listing, rows []T, cursor func(id string) (T, bool), keep func(T) bool) ([]T, bool, error) {
	at, ok := cursor(l.before)
	if !ok {
		return nil, false, missingParam("object", l.before, "ending_before")
	}
	page := make([]T, 0, l.limit)
	more := false
	for i := position(rows, at); i < len(rows); i++ {
		if rows[i].rec().seq <= at.rec().seq || !keep(rows[i]) {
			continue
		}
		if len(page) == l.limit {
			more = true
			break
		}
		page = append(page, rows[i])
	}
	for i, j := 0, len(page)-1; i < j; i, j = i+1, j-1 {
		page[i], page[j] = page[j], page[i]
	}
	return page, more, nil
}

// position is where v is, or would be, in rows.
func position[T entity](rows []T, v T) int {
	seq := v.rec().seq
	return sort.Search(len(rows), func(i int) bool { return rows[i].rec().seq >= seq })
}

// inOrder pages through rows in their own order, as Stripe lists invoice lines
// and subscription items.
func inOrder[T entity](l listing, rows []T) ([]T, bool, error) {
	index := func(id, param string) (int, error) {
		for i, row := range rows {
			if row.rec().id == id {
				return i, nil
			}
		}
		return 0, missingParam("object", id, param)
	}
	from, to := 0, len(rows)
	if l.after != "" {
		i, err := index(l.after, "starting_after")
		if err != nil {
			return nil, false, err
		}
		from = i + 1
	}
	if l.before != "" {
		i, err := index(l.before, "ending_before")
		if err != nil {
			return nil, false, err
		}
		to = i
		if to-l.limit > 0 {
			return rows[to-l.limit : to], true, nil
		}
		return rows[:to], false, nil
	}
	if to-from > l.limit {
		return rows[from : from+l.limit], true, nil
	}
	return rows[from:to], false, nil
}

// list renders a page.
func list[T any](url string, page []T, more bool, render func(T) object) object {
	data := make([]any, 0, len(page))
	for _, v := range page {
		data = append(data, render(v))
	}
	return object{"object": "list", "url": url, "has_more": more, "data": data}
}
