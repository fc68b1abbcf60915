package api_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/edge/wire"
)

func TestThePageTellsOfEveryRouteAndEveryProblem(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../../docs/http.md")
	require.NoError(t, err)
	page := string(raw)
	h := serve(t, newEnforcer(t, testPlans))
	for _, r := range h.api.Routes() {
		path, _, _ := strings.Cut(r.Path, "{feature}/")
		require.Contains(t, page, strings.TrimSpace(r.Method+" "+path))
	}
	codes := h.schema.at(t, "components", "schemas", "Problem", "properties", "error")["enum"].([]any)
	for _, code := range append(codes, "bad_gateway") {
		require.Contains(t, page, "\n### "+code.(string)+"\n", "a problem's type leads there")
	}
	for _, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(page, -1) {
		_, _, err := wire.Parse(nil, []byte(block[1]), wire.Shape{Allowed: wire.Account | wire.Feature | wire.Units, Required: wire.Account | wire.Feature})
		require.NoError(t, err, block[1])
		require.True(t, json.Valid([]byte(block[1])))
	}
}
