package wording_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/internal/wording"
)

func TestCountGroupsDigits(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1,000", -1: "−1", -999: "−999", -1000: "−1,000", 1234567: "1,234,567",
		math.MaxInt64: "9,223,372,036,854,775,807", math.MinInt64: "−9,223,372,036,854,775,808",
	} {
		require.Equal(t, want, wording.Count(n))
	}
}

func TestCountIsTheNumberAgain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64().Draw(t, "n")
		back, err := strconv.ParseInt(strings.NewReplacer(",", "", "−", "-").Replace(wording.Count(n)), 10, 64)
		require.NoError(t, err)
		require.Equal(t, n, back)
	})
}

func TestOfSaysOneOfOne(t *testing.T) {
	t.Parallel()
	require.Equal(t, "1 event", wording.Of(1, "event", "events"))
	require.Equal(t, "0 events", wording.Of(0, "event", "events"))
	require.Equal(t, "2,000 events", wording.Of(2000, "event", "events"))
}

func TestUnitNamesOneAndSeveral(t *testing.T) {
	t.Parallel()
	for one, many := range map[string]string{
		"event": "events", "query": "queries", "API query": "API queries", "day": "days", "key": "keys", "y": "ys", "7y": "7ys",
		"batch": "batches", "search": "searches", "push": "pushes", "bus": "buses", "class": "classes", "box": "boxes", "waltz": "waltzes",
		"image": "images", "é": "és", "fluxéy": "fluxéys",
	} {
		gotOne, gotMany := wording.Unit(one, "")
		require.Equal(t, one, gotOne)
		require.Equal(t, many, gotMany)
	}
	for _, c := range [][4]string{{"", "", "unit", "units"}, {"index", "indices", "index", "indices"}, {"درخواست", "درخواست\u200cها", "درخواست", "درخواست\u200cها"}} {
		one, many := wording.Unit(c[0], c[1])
		require.Equal(t, c[2:], []string{one, many})
	}
}
